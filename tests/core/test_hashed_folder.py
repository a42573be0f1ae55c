"""A folder of arrays gives back what was written, or an error with the file and the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderFormat

FORMAT = FolderFormat("toy", 1, "toy.json", "Remove {folder}.")
ARRAYS = {"a.npy": np.arange(6.0).reshape(2, 3), "deep/b.npy": np.zeros((0, 2), np.int8)}


@pytest.fixture
def folder(tmp_path):
    with FORMAT.written(tmp_path / "new" / "{folder}") as to:
        to.content["about"] = {1: "one"}
        for name, values in ARRAYS.items():
            to.array(name, values)
    return tmp_path / "new" / "{folder}"  # braces in a path mean nothing


def test_arrays_and_content_come_back(folder):
    stored = FORMAT.open(folder)
    assert stored.content["about"] == {"1": "one"}
    for name, values in ARRAYS.items():
        assert name in stored
        for got in (stored.array(name), stored.array(name, values.shape, values.dtype)):
            assert (got.shape, got.dtype) == (values.shape, values.dtype)
            assert got.tobytes() == values.tobytes()
            assert not got.flags.writeable
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert {path.stat().st_mode & 0o777 for path in (folder, folder / "deep")} == {0o700}


def test_what_is_wrong_is_named_with_the_remedy(folder):
    stored = FORMAT.open(folder)
    with pytest.raises(UserError) as caught:
        stored.array("c.npy")
    assert str(caught.value) == f"{folder / 'c.npy'} is not in toy.json. Remove {folder}."
    with pytest.raises(UserError, match=r"shape \(3, 2\); found .* Remove"):
        stored.array("a.npy", (3, 2))
    (folder / "a.npy").write_bytes(b"")
    with pytest.raises(UserError, match=r"a\.npy is damaged: .* Remove"):
        stored.array("a.npy")
    (folder / "a.npy").unlink()
    with pytest.raises(UserError, match=r"a\.npy cannot be read: No such file.* Remove"):
        stored.array("a.npy")
    (folder / "toy.json").unlink()
    with pytest.raises(UserError, match=r"toy\.json cannot be read: No such file.* Remove"):
        FORMAT.open(folder)


def test_a_folder_of_another_kind_is_refused(folder):
    other = FolderFormat("toy", 2, "toy.json", "Remove {folder}.")
    with pytest.raises(UserError, match=r"'toy' version 1; this gtjax reads 'toy' version 2\."):
        other.open(folder)


def write_and_fail(folder, error):
    with FORMAT.written(folder) as to:
        to.array("a.npy", np.zeros(3))
        raise error


def test_nothing_is_written_over_and_a_failure_leaves_nothing(folder, tmp_path):
    with pytest.raises(UserError, match="written to a new folder"), FORMAT.written(folder):
        pass
    assert FORMAT.open(folder).array("a.npy").tobytes() == ARRAYS["a.npy"].tobytes()
    before = sorted(tmp_path.rglob("*"))
    for error in (KeyError("mine"), OSError(28, "No space left on device")):
        expected = UserError if isinstance(error, OSError) else KeyError
        with pytest.raises(expected):
            write_and_fail(tmp_path / "other", error)
        assert sorted(tmp_path.rglob("*")) == before

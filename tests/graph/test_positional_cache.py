"""The cache of encodings: computed once, found again, and never believed when damaged."""

import os

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph.generators import synthetic_citation
from gtjax.graph.positional import ENCODINGS, cache, encode, laplacian, random_walk

GRAPH = synthetic_citation(nodes=60, mean_degree=4.0, features=1)


@pytest.fixture
def calls(monkeypatch):
    """Counts the computations."""
    made = []
    for kind, compute in list(ENCODINGS.items()):

        def counted(*args, compute=compute, kind=kind, **kwargs):
            made.append(kind)
            return compute(*args, **kwargs)

        monkeypatch.setitem(ENCODINGS, kind, counted)
    return made


@pytest.mark.parametrize(
    ("kind", "compute"), [("random_walk", random_walk), ("laplacian", laplacian)]
)
def test_the_second_time_comes_from_disk(tmp_path, calls, kind, compute):
    folder = tmp_path / "made" / "when needed"
    first, second = (encode(GRAPH, kind, 3, folder) for _ in range(2))
    assert calls == [kind]
    assert first.tobytes() == second.tobytes() == compute(GRAPH, 3).tobytes()
    assert second.dtype == np.float32
    (kept,) = folder.iterdir()  # nothing temporary stays
    assert {file.name for file in kept.iterdir()} == {cache.FILE, cache.FORMAT.manifest}


def test_other_edges_kind_size_or_version_are_other_files(tmp_path, calls, monkeypatch):
    other = synthetic_citation(nodes=60, mean_degree=4.0, features=1, seed=1)
    encode(GRAPH, "random_walk", 3, tmp_path)
    encode(other, "random_walk", 3, tmp_path)
    encode(GRAPH, "laplacian", 3, tmp_path)
    encode(GRAPH, "random_walk", 4, tmp_path)
    monkeypatch.setattr(cache, "ALGORITHM_VERSION", cache.ALGORITHM_VERSION + 1)
    encode(GRAPH, "random_walk", 3, tmp_path)
    assert len(calls) == 5
    assert len(list(tmp_path.iterdir())) == 5


def _huge_header(file):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000, 3), }"
    header = header.ljust(117) + "\n"
    file.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())


DAMAGE = {
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-10]),
    "empty": lambda file: file.write_bytes(b""),
    "garbage": lambda file: file.write_bytes(os.urandom(500)),
    "other shape": lambda file: np.save(file, np.zeros((3, 3), np.float32)),
    "other type": lambda file: np.save(file, np.zeros((60, 3))),
    "missing": lambda file: file.unlink(),
    "a bit": lambda file: file.write_bytes(file.read_bytes()[:-1] + b"?"),
    "no manifest": lambda file: (file.parent / cache.FORMAT.manifest).unlink(),
    "other manifest": lambda file: (file.parent / cache.FORMAT.manifest).write_text("{}"),
    "not finite": lambda file: np.save(file, np.full((60, 3), np.nan, np.float32)),
    "pickled": lambda file: np.save(file, np.full((60, 3), None), allow_pickle=True),
    "huge": _huge_header,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_computed_again_and_replaced(tmp_path, calls, damage):
    good = encode(GRAPH, "random_walk", 3, tmp_path)
    (folder,) = tmp_path.iterdir()
    file = folder / cache.FILE
    damage(file)
    again = encode(GRAPH, "random_walk", 3, tmp_path)
    assert again.tobytes() == good.tobytes()
    assert len(calls) == 2
    assert np.load(file).tobytes() == good.tobytes()


def test_a_folder_that_cannot_be_written_costs_the_cache_only(tmp_path, calls):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for _ in range(2):
        assert encode(GRAPH, "random_walk", 2, blocked / "folder").shape == (60, 2)
    assert len(calls) == 2


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(cache.np, "save", fail)
    assert encode(GRAPH, "random_walk", 2, tmp_path).shape == (60, 2)
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_the_folder(tmp_path, monkeypatch, calls):
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path))
    encode(GRAPH, "random_walk", 2)
    assert len(list((tmp_path / "positional").iterdir())) == 1
    monkeypatch.delenv("GTJAX_CACHE_DIR")
    assert cache.default_cache_dir().parts[-2:] == ("gtjax", "positional")


def test_progress_is_passed_on(tmp_path):
    seen = []
    for _ in range(2):
        encode(GRAPH, "random_walk", 2, tmp_path, progress=lambda *said: seen.append(said))
    assert seen[-1] == (1.0, "random-walk encoding")
    assert len(seen) == 2  # two blocks of columns, and nothing when it comes from disk


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(UserError, match="one of random_walk, laplacian; found 'sine'"):
        encode(GRAPH, "sine", 2, tmp_path)
    with pytest.raises(UserError, match="at least 1 column; found 0"):
        encode(GRAPH, "laplacian", 0, tmp_path)

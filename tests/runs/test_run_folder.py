"""What a run writes: by one process only, and a disk that takes nothing more is told in a line."""

from __future__ import annotations

import pytest

from gtjax.core.errors import UserError
from gtjax.runs.config import TrainConfig
from gtjax.runs.run_folder import RunFolder, new_run_path


def test_only_the_first_process_writes(tmp_path):
    folder = RunFolder(tmp_path, writes=False)
    folder.write_json("result.json", {})
    folder.append_metrics([{"step": 1}])
    folder.rewrite_metrics([{"step": 1}])
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_told(tmp_path):
    folder = RunFolder(tmp_path / "gone")
    for write in (
        lambda: folder.write_json("result.json", {}),
        lambda: folder.append_metrics([{"step": 1}]),
    ):
        with pytest.raises(UserError, match=r"cannot be written: No such file.*gtjax resume"):
            write()


def test_a_new_run_is_named_after_its_data_and_takes_nobodys_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = new_run_path(TrainConfig(data="a b/c&d.npz"))
    assert first.name.startswith("c-d-")
    first.mkdir(parents=True)
    assert new_run_path(TrainConfig(data="a b/c&d.npz")) != first

"""A folder that all processes have to see; here they are threads with one board."""

from __future__ import annotations

import threading

import pytest

from gtjax.core.errors import UserError
from gtjax.distributed import shared_folder
from gtjax.distributed.shared_folder import check_seen_by_all
from gtjax.distributed.team import OwnBoard, Team


@pytest.mark.parametrize("shared", [True, False])
def test_the_same_name_is_not_enough(tmp_path, monkeypatch, shared):
    monkeypatch.setattr(shared_folder, "PATIENCE_SECONDS", 0.3)
    board, ends = OwnBoard(), [None, None]
    folders = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    for folder in folders:
        folder.mkdir(exist_ok=True)

    def check(index):
        try:
            check_seen_by_all(Team(index, 2, board), folders[index])
        except UserError as error:
            ends[index] = str(error)

    threads = [threading.Thread(target=check, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends[0] == ends[1]
    if shared:
        assert ends[0] is None
    else:
        assert "process 1 on " in ends[0]
        assert f"{tmp_path / 'b'} is not {tmp_path / 'a'} there. Give --out in a file" in ends[0]
    assert not list(folders[0].iterdir())

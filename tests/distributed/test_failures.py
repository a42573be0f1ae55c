"""What happened to a run, line by line."""

from __future__ import annotations

from gtjax.distributed.failures import FILE, failures, note_failure


def test_lines_are_added_and_damaged_ones_left_out(tmp_path):
    note_failure(None, "a", "b")
    note_failure(tmp_path / "none", "a", "b")
    assert failures(tmp_path) == []
    note_failure(tmp_path, "process 1 was ended by SIGKILL", "starting again")
    with (tmp_path / FILE).open("a") as file:
        file.write('{"cut off\n[1]\n')
    note_failure(tmp_path, "process 0 ended with code 75", "giving up")
    found = failures(tmp_path)
    assert [each["then"] for each in found] == ["starting again", "giving up"]
    assert oct((tmp_path / FILE).stat().st_mode & 0o077) == "0o0"

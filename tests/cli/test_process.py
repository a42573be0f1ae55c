"""The command as a process of its own: exit codes, closed pipes and Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gtjax.cli import doctor
from gtjax.cli.main import main

ENTRY = [sys.executable, "-c", "import sys; from gtjax.cli.main import main; sys.exit(main())"]


def test_a_mistake_is_one_message_and_exit_code_2():
    done = subprocess.run([*ENTRY, "evaluate", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    said = "gtjax: nowhere: not the folder of a run (it has no config.json)\n"
    assert done.stderr == said


def test_a_reader_that_has_seen_enough_is_no_error():
    process = subprocess.Popen(
        [*ENTRY, "datasets", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # as head does
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0
    process.stderr.close()


def test_ctrl_c_is_quiet(gtjax, monkeypatch):
    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupted)
    assert gtjax("doctor") == (130, "", "gtjax: interrupted\n")


def test_anything_else_that_goes_wrong_is_not_hidden(monkeypatch):
    def broken(argv):
        raise RuntimeError("a bug")

    monkeypatch.setattr(doctor, "run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["doctor"])

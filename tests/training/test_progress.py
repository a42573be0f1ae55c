"""Progress: a bar for people at a terminal, a line now and then for logs, on stderr."""

from __future__ import annotations

import io
import sys

import pytest

from gtjax.training import progress as module
from gtjax.training.progress import Pace, memory_in_use, progress, say


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when told."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_a_line_at_the_start_at_the_end_and_every_few_seconds(capsys, clock):
    with progress("training", 100) as update:
        for done in range(1, 101):
            update(done, f"loss {done}")
            clock[0] += 0.5
    printed = capsys.readouterr()
    assert printed.out == ""
    steps = [int(line.split()[1].split("/")[0]) for line in printed.err.splitlines()]
    assert steps == [*range(1, 101, 10), 100]
    assert printed.err.startswith("training 1/100 loss 1\n")


def test_a_terminal_gets_a_bar_that_is_redrawn(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("training", 10) as update:
        for done in range(11):
            update(done, f"loss {done}")
    shown = terminal.getvalue()
    assert "training" in shown
    assert "10/10" in shown
    assert "loss 10" in shown
    assert "\x1b[" in shown  # redrawn in place, not line after line
    assert shown.count("\n") < 10


def test_nothing_is_shown_on_request(capsys):
    with progress("training", 10, show=False) as update:
        update(10, "loss")
    assert capsys.readouterr() == ("", "")


def test_the_user_is_told_things_apart_from_the_output(capsys):
    say("a", 1)
    assert capsys.readouterr() == ("", "a 1\n")


def test_the_pace_has_nodes_a_second_and_memory():
    pace = Pace(2_000_000)
    pace.saw(0.5)
    assert pace.text.startswith("4M nodes/s, ")
    assert pace.text.endswith(" GiB")
    assert memory_in_use() > 2**20


def test_lines_say_how_long_it_will_take(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with progress("training", 100) as update:
        for done in range(0, 101, 10):
            update(done, "x")
            now[0] += 6
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "training 0/100 x"
    assert said[1] == "training 10/100 x, 54 s left"
    assert said[-1] == "training 100/100 x"

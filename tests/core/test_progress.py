"""Progress: a bar for people at a terminal, a line now and then for logs, on stderr."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from gtjax.core import progress as module
from gtjax.core.progress import Pace, memory_in_use, progress, say
from gtjax.core.progress_bar import bar_for


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


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_narrow_terminal_has_below_the_bar_what_does_not_fit_beside_it(width):
    text = "loss 0.1234, best val accuracy 0.8123 at step 120, 0.123 s/step, 1.2 GiB, checkpoint"
    text += " of step 100"
    console = Console(file=io.StringIO(), width=width)
    bar = bar_for(console)
    bar.add_task("training", total=2000, completed=1200, text=text)
    with console.capture() as captured:
        console.print(bar.get_renderable())
    lines = captured.get().splitlines()
    assert lines[0].startswith("training \u2501\u2501\u2501\u2501")
    assert " 1200/2000 -:--:--" in lines[0]  # how long it takes is not known yet
    assert ("loss" in lines[0]) == (len(lines) == 1)
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).endswith(text)
    bar.add_task("planning", total=1.0, text="metis")
    with console.capture() as captured:
        console.print(bar.get_renderable())
    assert captured.get().splitlines()[-1].endswith("0 % -:--:-- metis")


def test_a_share_is_in_percent_never_runs_backwards_and_ends_at_all(capsys, clock):
    with progress("planning", 1.0) as update:
        for done in (0.0666667, 0.9, 0.2, 0.95):
            update(done, "x")
            clock[0] += 6
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" %")[0] for line in said] == [
        f"planning {share}" for share in (7, 90, 90, 95, 100)
    ]


def test_a_share_that_failed_is_not_all_done(capsys, clock):
    def fail():
        with progress("planning", 1.0) as update:
            update(0.5, "x")
            raise ValueError("why")

    with pytest.raises(ValueError, match="why"):
        fail()
    assert capsys.readouterr().err == "planning 50 % x\n"


@pytest.mark.parametrize(
    ("total", "shown"), [(1.0, "100 %"), (10, "4/10")], ids=["a share", "steps that ended early"]
)
def test_a_bar_ends_where_it_came_to(monkeypatch, total, shown):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("planning", total) as update:
        update(0.4 * total, "x")
        update(0.1 * total, "x")
    last = [line for line in terminal.getvalue().split("\r") if "planning" in line][-1]
    assert shown in last

"""Progress for people: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 5.0

Update = Callable[[float, str], None]


def silent(done: float, text: str) -> None:
    """Show nothing."""


@contextmanager
def progress(title: str, total: float, *, show: bool = True) -> Iterator[Update]:
    """Give a function to call with how much is done and what to say about it."""
    if not show:
        yield silent
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(title, total=total, text="")
            yield lambda done, text: bar.update(task, completed=done, text=text)
    else:
        yield _Lines(title, total)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    last = (TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
    return Progress(*columns, *last, console=Console(stderr=True))


class _Lines:
    """A line at the start, at the end, and every few seconds between."""

    def __init__(self, title: str, total: float):
        self._title, self._total = title, total
        self._last = -LINE_SECONDS

    def __call__(self, done: float, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS or done >= self._total:
            self._last = now
            say(f"{self._title} {done:g}/{self._total:g} {text}")


def say(*words: Any) -> None:
    """Tell the user something, apart from the output a program may read."""
    print(*words, file=sys.stderr, flush=True)  # noqa: T201

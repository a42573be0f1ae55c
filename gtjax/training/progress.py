"""Progress for people: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
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
        self._first: tuple[float, float] | None = None

    def __call__(self, done: float, text: str) -> None:
        now = time.monotonic()
        first_at, first_done = self._first = self._first or (now, done)
        if now - self._last >= LINE_SECONDS or done >= self._total:
            self._last = now
            left = ""
            if first_done < done < self._total:
                seconds = (now - first_at) * (self._total - done) / (done - first_done)
                left = (
                    f", {seconds:.0f} s left" if seconds < 600 else f", {seconds / 60:.0f} min left"
                )
            say(f"{self._title} {done:g}/{self._total:g} {text}{left}")


class Pace:
    """Nodes a second, and the memory of this process."""

    def __init__(self, nodes: int):
        self._nodes, self.text = nodes, ""

    def saw(self, seconds_per_step: float) -> None:
        """What a step took."""
        rate = self._nodes / max(seconds_per_step, 1e-9)
        self.text = f"{_short(rate)} nodes/s, {memory_in_use() / 2**30:.2g} GiB"


def memory_in_use() -> float:
    """Bytes on the first device of this process; on a CPU, those of the process."""
    import jax

    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_in_use" in stats:
        return float(stats["bytes_in_use"])
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return float(pages) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the most it ever was, in bytes on macOS
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def say(*words: Any) -> None:
    """Tell the user something, apart from the output a program may read."""
    print(*words, file=sys.stderr, flush=True)  # noqa: T201

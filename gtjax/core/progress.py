"""How far a long computation is: the hook by which it says so, and what is shown of it to people.

A bar on a terminal, a line every few seconds in a log.
"""

from __future__ import annotations

import os
import resource
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LINE_SECONDS = 5.0
WIDTH = 80  # of a terminal that does not say

Progress = Callable[[float, str], None]
"""Called with how much is done, of 1 unless another total was agreed on, and a message."""


def ignore_progress(done: float, text: str) -> None:
    """Say nothing."""


@contextmanager
def progress(title: str, total: float, *, show: bool = True) -> Iterator[Progress]:
    """Give a function to call with how much is done and what to say about it.

    What is shown never runs backwards, whatever is said. A share, of a total of 1, is all done when
    nothing went wrong; steps may have ended early, and stay where they are.
    """
    if not show:
        yield ignore_progress
    elif sys.stderr.isatty():
        with _bar() as bar:
            task, most = bar.add_task(title, total=total, text=""), [0.0]

            def update(done: float, text: str) -> None:
                most[0] = max(most[0], done)
                bar.update(task, completed=most[0], text=text)

            yield update
            if total == 1:
                bar.update(task, completed=1.0)
    else:
        lines = _Lines(title, total)
        yield lines
        lines.end()


def _bar() -> Any:
    from rich.console import Console

    from gtjax.core.progress_bar import bar_for

    return bar_for(Console(stderr=True))


class _Lines:
    """A line at the start, at the end, and every few seconds between."""

    def __init__(self, title: str, total: float):
        self._title, self._total = title, total
        self._last, self._most = -LINE_SECONDS, 0.0
        self._first: tuple[float, float] | None = None
        self._said_all = False

    def __call__(self, done: float, text: str) -> None:
        now = time.monotonic()
        done = self._most = max(self._most, done)
        first_at, first_done = self._first = self._first or (now, done)
        if now - self._last >= LINE_SECONDS or (done >= self._total and not self._said_all):
            self._last, self._said_all = now, done >= self._total
            left = ""
            if first_done < done < self._total:
                seconds = (now - first_at) * (self._total - done) / (done - first_done)
                left = (
                    f", {seconds:.0f} s left" if seconds < 600 else f", {seconds / 60:.0f} min left"
                )
            say(f"{self._title} {how_much(done, self._total)} {text}{left}")

    def end(self) -> None:
        """A share that was spoken of is all done."""
        if self._total == 1 and self._first is not None and not self._said_all:
            say(f"{self._title} {how_much(1.0, 1.0)}")


def how_much(done: float, total: float) -> str:
    """Steps of how many; a share in percent."""
    return f"{100 * done:.0f} %" if total == 1 else f"{done:.0f}/{total:.0f}"


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
    """Tell the user something, apart from the output a program may read.

    Words stay whole on a terminal; a log gets lines as they are.
    """
    text = " ".join(map(str, words))
    if sys.stderr.isatty():
        columns = _columns()
        text = "\n".join(_wrapped(line, columns) for line in text.split("\n"))
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except (OSError, ValueError):  # what says that it is a terminal need not be one
        return WIDTH


def _wrapped(line: str, columns: int) -> str:
    return textwrap.fill(
        line, columns, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )

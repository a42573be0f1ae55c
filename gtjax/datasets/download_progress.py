"""Show how a download is going: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SECONDS_BETWEEN_LINES = 10.0
_log = logging.getLogger("gtjax")


@contextmanager
def progress(name: str, total: int | None, start: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of bytes of each piece that arrives."""
    if sys.stderr.isatty():
        with _bar(name, total, start) as advance:
            yield advance
        return
    received, next_line = start, time.monotonic() + _SECONDS_BETWEEN_LINES

    def advance(num_bytes: int, /) -> None:
        nonlocal received, next_line
        received += num_bytes
        if time.monotonic() >= next_line:
            share = f" of {total / 1e6:.0f}" if total else ""
            _log.info("%s: %.0f%s MB", name, received / 1e6, share)
            next_line = time.monotonic() + _SECONDS_BETWEEN_LINES

    yield advance


@contextmanager
def _bar(name: str, total: int | None, start: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total, completed=start)
        yield lambda num_bytes: bar.advance(task, num_bytes)

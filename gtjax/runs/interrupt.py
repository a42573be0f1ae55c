"""Ctrl-C and SIGTERM ask a run to stop at the next safe moment instead of tearing it down.

Python runs a handler only once native code returns, and a compiler may take minutes. So a thread
hears of signals too, by the pipe that Python's own handler in C writes to: it says at once that the
request was heard, and ends a command that is asked twice and cannot hear it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from gtjax.distributed.exits import is_supervised

PATIENCE_SECONDS = 2.0  # that a command has to end by itself after the second signal
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """While active, the first signal only sets `asked`; the second acts as it always did.

    It may be entered again while it is active: a command does so before it loads anything. With
    `ends`, as a command has it, the second signal ends the process also within native code.
    """

    def __init__(self, *, ends: bool = False, doing: str = "") -> None:
        self.asked, self.speaks = False, True
        self._ends, self._doing = ends, doing
        self._entered, self._signalled = 0, False
        self._before: dict[int, Any] = {}
        self._acknowledged = threading.Lock()
        self._ear: _Ear | None = None

    def ask(self) -> None:
        """As a signal does, but of the program's own accord."""
        self.asked = True

    @contextlib.contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """What has to be done, in these words, before a request can be heeded."""
        before, self._doing = self._doing, doing
        try:
            yield
        finally:
            self._doing = before

    def __enter__(self) -> StopRequest:
        self._entered += 1
        if not self._signalled and threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                # Again if entered again: a library may have taken the signal for itself.
                before = signal.signal(number, self._ask)
                self._before.setdefault(number, signal.SIG_DFL if before is None else before)
            self._ear = self._ear or _Ear(self._heard, self._asked_twice)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._restore()
            if self._ear is not None:
                self._ear.close()
                self._ear = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        self._heard()
        # SLURM signals every process of a step, and the supervisor passes its signal on: that is
        # one request. Who is asked twice ends by the supervisor.
        if not is_supervised():
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _heard(self) -> None:
        """In the handler or the thread, whichever comes first."""
        self.ask()
        if self._acknowledged.acquire(blocking=False) and self.speaks:
            when = f"as soon as {self._doing} is done" if self._doing else "after the current step"
            _write(f"gtjax: stopping {when}; press again to end at once")

    def _asked_twice(self, number: int) -> None:
        if self._ends and not is_supervised():
            _write("gtjax: interrupted")
            os._exit(128 + number)


class _Ear:
    """A thread that hears of signals whatever the main thread does."""

    def __init__(self, first: Any, second: Any):
        self._first, self._second = first, second
        self._end, begin = os.pipe()
        os.set_blocking(begin, False)
        self._begin, self._over = begin, threading.Event()
        self._others = signal.set_wakeup_fd(begin, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear nothing more."""
        self._over.set()
        signal.set_wakeup_fd(self._others)
        os.write(self._begin, b"\0")
        self._thread.join()
        os.close(self._begin)
        os.close(self._end)

    def _listen(self) -> None:
        heard = 0
        while not self._over.is_set():
            for number in os.read(self._end, 64):
                if number not in _SIGNALS:
                    continue
                heard += 1
                if heard == 1:
                    self._first()
                elif heard == 2 and not self._over.wait(PATIENCE_SECONDS):
                    self._second(number)


def _write(text: str) -> None:
    """A line on standard error, safely from anywhere, below what a bar has drawn there."""
    above = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    with contextlib.suppress(OSError):
        os.write(2, f"{above}{text}\n".encode())

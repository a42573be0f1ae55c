"""Ctrl-C and SIGTERM ask a run to stop at the next safe moment instead of tearing it down."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """While active, the first signal only sets `asked`; the second acts as it always did.

    It may be entered again while it is active: a command does so before it loads anything.
    """

    def __init__(self) -> None:
        self.asked = False
        self._entered, self._signalled = 0, False
        self._before: dict[int, Any] = {}

    def ask(self) -> None:
        """As a signal does."""
        self.asked = True

    def __enter__(self) -> StopRequest:
        self._entered += 1
        if not self._signalled and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # Again if entered again: a library may have taken the signal for itself.
                before = signal.signal(number, self._ask)
                self._before.setdefault(number, signal.SIG_DFL if before is None else before)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True
        self.ask()
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

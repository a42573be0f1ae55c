"""That a process lives, how far it is and what it does: told to the others beat by beat.

Everybody beats from joining on, by a thread of its own, so that work which takes long can be told
from a process that is gone: minutes of partitioning beat, a host that was stopped does not. A beat
is one request of some 150 bytes at the first process. It comes every second up to 512 processes and
less often beyond, so that there are never more than 512 a second, but for as many as it takes to
notice who is silent within the limit: at least 8 within it (at 4,096 processes and 60 s one in
7.5 s each, 546 a second together).
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from gtjax.distributed.team import Board

T = TypeVar("T")

LIMIT_SECONDS = 60.0  # of silence, after which a process counts as lost
BEAT_SECONDS = 1.0
BEATS_A_SECOND = 512  # of all processes together
BEATS_WITHIN_LIMIT = 8
LONGEST_DOING = 80  # characters


class LostError(Exception):
    """Another process of the run is gone: nothing can go on without it."""


@dataclass(frozen=True)
class Seen:
    """What one process last told of itself."""

    marks: int  # passed, the same in every process
    beat: int
    host: str
    pid: int
    agreed: int = 0  # agreements that it has come to, as in `Team`
    doing: str = ""

    @property
    def where(self) -> str:
        """For people who look for it."""
        return f"pid {self.pid} on {self.host}"

    @property
    def state(self) -> str:
        """What the system says of a process on the same host, where it can be asked."""
        if self.host != socket.gethostname():
            return ""
        names = {"T": "stopped by a signal", "D": "waiting for a disk", "Z": "dead"}
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
            state = text.rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "" if not Path("/proc/self/stat").exists() else " and gone"
        return f" and {names[state]}" if state in names else ""


class Pulse:
    """The beats of this process, and what was heard of others."""

    def __init__(self, board: Board, index: int, count: int):
        self._board, self._index, self._count = board, index, count
        self.limit = LIMIT_SECONDS
        self.marks, self.agreed, self.doing = 0, 0, ""
        self.answered = 0  # beats that were taken: the first process is not stopped
        self.first: Seen | None = None  # what it told last, as far as anybody wanted to know
        self.is_asked = False  # whether somebody does
        self._number = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def seconds(self) -> float:
        """From beat to beat."""
        few = min(self._count / BEATS_A_SECOND, self.limit / BEATS_WITHIN_LIMIT)
        return BEAT_SECONDS * max(1.0, few)

    @property
    def is_beating(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._thread is not None and not self._stop.is_set()

    def start(self) -> None:
        """From now on, until `stop` or the end of the process."""
        if self.is_beating:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat_on, name="pulse", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # a thread must not be in a request when Python ends

    def stop(self) -> None:
        """No more beats; does not wait for a first process that does not answer."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * BEAT_SECONDS)
        atexit.unregister(self.stop)

    def beat(self) -> None:
        """Tell the others, and, if somebody wants to know, hear of the first."""
        self._number += 1
        doing = self.doing[:LONGEST_DOING]
        host, pid = socket.gethostname(), os.getpid()
        seen = Seen(self.marks, self._number, host, pid, self.agreed, doing)
        self._board.put(f"alive/{self._index}", json.dumps(asdict(seen)))
        if self._index and (self.is_asked or self.first is None):
            self.first = self.of_first() or self.first
        self.answered += 1

    def of_first(self) -> Seen | None:
        """What the first process tells now."""
        text = self._board.look("alive/0")
        return None if text is None else Seen(**json.loads(text))

    def of_all(self) -> dict[int, Seen]:
        """What all processes tell now: for the first alone, since it is much."""
        found = self._board.under("alive/")
        return {int(index): Seen(**json.loads(text)) for index, text in found.items()}

    def _beat_on(self) -> None:
        while not self._stop.is_set():
            with suppress(LostError):  # others tell of it
                self.beat()
            self._stop.wait(self.seconds)


def within(seconds: float, ask: Callable[[], T]) -> T | None:
    """The answer if it comes in time, else None."""
    answers: list[T] = []

    def run() -> None:
        with suppress(LostError):
            answers.append(ask())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


class Awake:
    """Seconds that this process was awake between two looks: not those in which it was stopped."""

    def __init__(self, most: float):
        self._most, self._last = most, time.monotonic()

    def seconds(self) -> float:
        """Since the last time this was asked."""
        now, before = time.monotonic(), self._last
        self._last = now
        return min(now - before, self._most)

"""Notices that a run is stuck, says which process did not arrive, and ends this one.

A process that is killed closes its connections, which the others see. One that is stopped, or stuck
in its own code, does not: the others would wait for it in a collective for ever. So every process
has a thread that tells the others once a second how far it has come, and that ends the process when
a turn takes too long. Those who have not come as far as the others, or are no longer heard of, are
the ones to name. Stacks of all threads go to the run's folder.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.distributed.exits import LOST, is_supervised
from gtjax.distributed.failures import note_failure
from gtjax.distributed.team import LostError, Team

LEAST_SECONDS = 60.0  # that a turn may take, however short the others were
FACTOR = 10.0  # times the median that it may take
BEAT_SECONDS = 1.0
INSPECTION_SECONDS = 12.0  # from suspicion to exit: within the limit, not after it
ASLEEP = 5  # beats late from which on this process must have been stopped itself
REMEMBERED = 50  # turns that the median is taken of


@dataclass(frozen=True)
class Seen:
    """What one process last told of itself."""

    marks: int  # passed, the same in every process
    beat: int
    host: str
    pid: int


class Watchdog:
    """While active, ends this process if a turn takes longer than it may."""

    def __init__(
        self,
        team: Team,
        folder: Path,
        *,
        least: float = LEAST_SECONDS,
        active: bool = True,
        orphaned: Callable[[], None] = lambda: None,
        end: Callable[[int], Any] = os._exit,
    ):
        self._team, self._folder = team, folder
        self._least, self._active = least, active
        self._orphaned, self._end = orphaned, end
        self._seconds: list[float] = []
        self._marks, self._beat = 0, 0
        self._expected = 1.0
        self._begun: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._parent = os.getppid() if is_supervised() else None

    def __enter__(self) -> Watchdog:
        if self._active:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._active:
            self._thread.join(timeout=5 * BEAT_SECONDS)

    def next_turn(self, steps: int) -> None:
        """A turn of so many steps begins; the one before it is over."""
        self.mark()
        self._expected = steps * (statistics.median(self._seconds) if self._seconds else 0.0)
        self._begun = time.monotonic()

    def mark(self) -> None:
        """All processes come by here, each as often as the others, and next wait for each other."""
        self._marks += 1

    def took(self, seconds_per_step: float) -> None:
        """Remember what the steps of a turn took."""
        self._seconds = [*self._seconds[1 - REMEMBERED :], seconds_per_step]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For what takes as long as it takes: compiling, drawing parts."""
        self._begun = None
        yield
        self._begun = time.monotonic()

    @property
    def limit(self) -> float:
        """Seconds that the current turn may take."""
        return max(self._least, FACTOR * self._expected)

    def _watch(self) -> None:
        awake = time.monotonic()
        while not self._stop.wait(BEAT_SECONDS):
            self._tell()
            now, before = time.monotonic(), awake
            awake = now
            if now - before > ASLEEP * BEAT_SECONDS and self._begun is not None:
                # This process itself was stopped, and goes on: that was not the turn's fault.
                self._begun += now - before
            if self._parent is not None and os.getppid() != self._parent:
                self._orphaned()
            begun = self._begun
            if begun is None:
                continue
            if time.monotonic() - begun > max(0.3 * self.limit, self.limit - INSPECTION_SECONDS):
                self._inspect(begun)

    def _tell(self) -> None:
        """Without waiting for an answer: a coordinator that is stuck must not stop this thread."""
        self._beat += 1
        known = {
            "marks": self._marks,
            "beat": self._beat,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        text = json.dumps(known)
        _within(BEAT_SECONDS, lambda: self._team.board.put(f"alive/{self._team.index}", text))

    def _inspect(self, begun: float) -> None:
        """See who is missing; the turn may still end while this looks."""
        before = self._others()
        for _ in range(3):
            self._stop.wait(BEAT_SECONDS)
            self._tell()
        after = self._others()
        if self._stop.is_set() or self._begun != begun:
            return
        missing = self._missing(before, after)
        self._write_stacks()
        if self._speaks(missing):
            self._say(missing, time.monotonic() - begun)
        # The first process is the coordinator: without it the others end with a lot of noise.
        time.sleep(BEAT_SECONDS * (3.5 if self._team.is_first else 1.5))
        self._end(LOST)

    def _speaks(self, missing: dict[int, str]) -> bool:
        """Who is missing speaks for itself, and the first of the others for all."""
        others = [index for index in range(self._team.count) if index not in missing]
        return self._team.index in missing or self._team.index == min(others, default=0)

    def _others(self) -> dict[int, Seen]:
        found = _within(
            BEAT_SECONDS,
            lambda: {
                int(index): Seen(**json.loads(text))
                for index, text in self._team.board.under("alive/").items()
            },
        )
        return found or {}

    def _missing(self, before: dict[int, Seen], after: dict[int, Seen]) -> dict[int, str]:
        """Who did not arrive, and how that is known."""
        if not after:
            return {} if self._team.is_first else {0: "it does not answer, and is the coordinator"}
        missing: dict[int, str] = {}
        furthest = max(seen.marks for seen in after.values())
        for index in range(self._team.count):
            seen = after.get(index)
            if seen is None:
                missing[index] = "nothing was ever heard of it"
            elif index in before and seen.beat == before[index].beat:
                missing[index] = f"it is silent{_state(seen)}; {_where(seen)}"
            elif seen.marks < furthest:
                missing[index] = f"it answers, but is stuck; {_where(seen)}"
        return missing

    def _say(self, missing: dict[int, str], seconds: float) -> None:
        lines = [
            f"gtjax: process {index} did not arrive: {why}" for index, why in missing.items()
        ] or ["gtjax: all processes arrived at the same step, and none comes back from it"]
        lines.append(
            f"gtjax: process {self._team.index} waited {seconds:.0f} s (the limit is "
            f"{self.limit:.0f}: the larger of {self._least:g} and {FACTOR:g} times the median), "
            f"and ends. Stacks are in {self._stacks}."
        )
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
        why = "; ".join(line.removeprefix("gtjax: ") for line in lines[:-1])
        note_failure(self._folder, why, f"process {self._team.index} ended after {seconds:.0f} s")

    @property
    def _stacks(self) -> Path:
        return self._folder / "stacks" / f"process-{self._team.index}.txt"

    def _write_stacks(self) -> None:
        try:
            self._stacks.parent.mkdir(parents=True, exist_ok=True)
            with self._stacks.open("w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError:  # the disk may be what is stuck
            faulthandler.dump_traceback(sys.stderr, all_threads=True)


def _within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The answer if it comes in time, else None."""
    answers: list[Any] = []

    def run() -> None:
        with suppress(LostError):
            answers.append(ask())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


def _where(seen: Seen) -> str:
    return f"pid {seen.pid} on {seen.host}"


def _state(seen: Seen) -> str:
    """What the system says of a process on the same host, where it can be asked."""
    if seen.host != socket.gethostname():
        return ""
    names = {"T": "stopped by a signal", "D": "waiting for a disk", "Z": "dead"}
    try:
        text = Path(f"/proc/{seen.pid}/stat").read_text(encoding="ascii", errors="replace")
        state = text.rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "" if not Path("/proc/self/stat").exists() else " and gone"
    return f" and {names[state]}" if state in names else ""

"""Notices that a run is stuck, says which process did not arrive, and ends this one.

A process that is killed closes its connections, which the others see. One that is stopped, or stuck
in its own code, does not: the others would wait for it in a collective for ever. So every process
tells beat by beat how far it has come (`pulse`), and has a thread that ends it when a turn takes
too long. The first process looks at the beats of all then: those who have not come as far as the
others, or are no longer heard of, are the ones to name. It leaves a verdict, and the others wait
for that instead of looking themselves. If none comes, and the first no longer beats, it is the one.
Stacks of all threads go to the run's folder. While nothing is computed on devices, see `waiting`.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gtjax.distributed.exits import LOST, is_supervised
from gtjax.distributed.failures import note_failure
from gtjax.distributed.pulse import BEAT_SECONDS, Seen, within
from gtjax.distributed.team import Team
from gtjax.distributed.waiting import MOST_NAMED

LEAST_SECONDS = 60.0  # that a turn may take, however short the others were
FACTOR = 10.0  # times the median that it may take
LOOKED_AT = 3  # beats, to see who has none
VERDICT = "verdict"
INSPECTION_SECONDS = 12.0  # from suspicion to exit, within the limit; more if beats are rare
ASLEEP = 5  # beats late from which on this process must have been stopped itself
REMEMBERED = 50  # turns that the median is taken of


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
        self._began_pulse = False
        self._expected = 1.0
        self._begun: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._parent = os.getppid() if is_supervised() else None

    def __enter__(self) -> Watchdog:
        if self._active:
            self._began_pulse = not self._team.pulse.is_beating
            self._team.pulse.start()
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._active:
            self._thread.join(timeout=5 * BEAT_SECONDS)
            if self._began_pulse:
                self._team.pulse.stop()

    def next_turn(self, steps: int) -> None:
        """A turn of so many steps begins; the one before it is over."""
        self.mark()
        self._expected = steps * (statistics.median(self._seconds) if self._seconds else 0.0)
        self._begun = time.monotonic()

    def mark(self) -> None:
        """All processes come by here, each as often as the others, and next wait for each other."""
        self._team.pulse.marks += 1

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

    @property
    def _inspection(self) -> float:
        """Seconds from suspicion to exit."""
        return INSPECTION_SECONDS + (LOOKED_AT + 1) * (self._team.pulse.seconds - BEAT_SECONDS)

    def _watch(self) -> None:
        awake = time.monotonic()
        while not self._stop.wait(BEAT_SECONDS):
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
            if time.monotonic() - begun > max(0.3 * self.limit, self.limit - self._inspection):
                self._inspect(begun)
                awake = time.monotonic()

    def _inspect(self, begun: float) -> None:
        """See who is missing; the turn may still end while this looks."""
        verdict = self._judged(begun) if self._team.is_first else self._heard(begun)
        if verdict is None:
            return
        self._write_stacks()
        missing = {int(index): why for index, why in verdict["missing"].items()}
        if self._team.index in missing or self._team.index == verdict["speaker"]:
            self._say(missing, verdict["more"], time.monotonic() - begun)
        # The first process is the coordinator: without it the others end with a lot of noise.
        time.sleep(BEAT_SECONDS * (3.5 if self._team.is_first else 1.5))
        self._end(LOST)

    def _is_over(self, begun: float) -> bool:
        """Whether the turn that was suspected has ended after all."""
        return self._stop.is_set() or self._begun != begun

    def _judged(self, begun: float) -> dict[str, Any] | None:
        """Look at the beats of all, and leave word of what they say; None if the turn ended."""
        pulse = self._team.pulse
        before = within(pulse.seconds, pulse.of_all) or {}
        self._stop.wait(LOOKED_AT * pulse.seconds)
        after = within(pulse.seconds, pulse.of_all) or {}
        if self._is_over(begun):
            return None
        verdict = _verdict(self._missing(before, after), self._team.count)
        within(BEAT_SECONDS, lambda: self._team.board.put(VERDICT, json.dumps(verdict)))
        return verdict

    def _heard(self, begun: float) -> dict[str, Any] | None:
        """The verdict of the first process, or why there is none; None if the turn ended."""
        pulse, board = self._team.pulse, self._team.board
        silent, last = 0, None
        while not self._is_over(begun):
            said = within(pulse.seconds, lambda: board.look(VERDICT))
            if said is not None:
                return json.loads(said)
            first = within(pulse.seconds, pulse.of_first)
            silent = silent + 1 if first is None or first == last else 0
            last = first or last
            if silent > LOOKED_AT:
                known = last or pulse.first
                where = "" if known is None else f"{known.state}; {known.where}"
                here = socket.gethostname()
                why = "it is the coordinator, and does not answer"
                why += f", or {here} is cut off from it{where}"
                return _verdict({0: why}, self._team.count)
            if time.monotonic() - begun > self.limit + self._inspection:
                return _verdict({}, self._team.count)
            self._stop.wait(pulse.seconds)
        return None

    def _missing(self, before: dict[int, Seen], after: dict[int, Seen]) -> dict[int, str]:
        """Who did not arrive, and how that is known."""
        missing: dict[int, str] = {}
        furthest = max((seen.marks for seen in after.values()), default=0)
        for index in range(self._team.count) if after else ():
            seen = after.get(index)
            if seen is None:
                missing[index] = "nothing was ever heard of it"
            elif index in before and seen.beat == before[index].beat:
                missing[index] = f"it is silent{seen.state}; {seen.where}"
            elif seen.marks < furthest:
                missing[index] = f"it answers, but is stuck; {seen.where}"
        return missing

    def _say(self, missing: dict[int, str], more: int, seconds: float) -> None:
        lines = [f"gtjax: process {index} did not arrive: {why}" for index, why in missing.items()]
        lines += [f"gtjax: {more} more did not arrive"] * (more > 0)
        lines = lines or [
            "gtjax: all processes arrived at the same step, and none comes back from it"
        ]
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


def _verdict(missing: dict[int, str], count: int) -> dict[str, Any]:
    """What all have to know: of many who are missing the first, and who speaks for the others."""
    speaker = next((index for index in range(count) if index not in missing), 0)
    named = dict(list(missing.items())[:MOST_NAMED])
    return {"missing": named, "more": len(missing) - len(named), "speaker": speaker}

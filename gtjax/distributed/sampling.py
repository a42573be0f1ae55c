"""How much of a step is communication, from a trace of one dispatch; and who is slow.

All processes of a run take equally long for a step, since they wait for each other in it. What
tells them apart is how much of that time each spends in collectives: who is slow waits for nobody.
A trace of a dispatch costs some milliseconds, so one is taken now and then.
"""

from __future__ import annotations

import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax

from gtjax.distributed.team import Team

T = TypeVar("T")

FIRST_TURN = 3  # that is sampled
EVERY_SECONDS = 120.0  # between samples

SLOWER = 1.5  # times the median of computing, from which on a process is named
_COLLECTIVE = re.compile(
    r"%?([\w.-]+) = .*?\s(?:all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|"
    r"collective-permute|collective-broadcast)(?:-start|-done)?\("
)


class Sampler:
    """Takes a sample of a run now and then, and says what came of it."""

    def __init__(self, team: Team):
        self._team, self.text = team, ""
        self._names: frozenset[str] = frozenset()
        self._turns, self._at = 0, 0.0

    def watch(self, compiled: Any) -> None:
        """What a step is made of, from now on."""
        self._names = collective_names(compiled)

    def is_due(self) -> bool:
        """Whether to sample the next turn; the first few are not like the others."""
        self._turns += 1
        now = time.monotonic()
        due = bool(self._names) and (
            self._turns == FIRST_TURN
            or (self._turns > FIRST_TURN and now - self._at > EVERY_SECONDS)
        )
        if due:
            self._at = now
        return due

    def sample(self, run: Callable[[], T]) -> T:
        """Run a turn, in all processes, and see how long each of them communicates."""
        started = time.monotonic()
        result, communicating = traced(run, self._names)
        seconds = time.monotonic() - started
        computing = None if communicating is None else max(0.0, seconds - communicating)
        found = self._team.from_all(computing)
        if None not in found:
            self.saw(seconds, found)
        return result

    def saw(self, seconds: float, computing: list[float]) -> None:
        """What every process computed of so many seconds."""
        share = 1 - usual(computing) / max(seconds, 1e-9)
        self.text = f"communication {max(0.0, share):.0%}"
        if slow := stragglers(computing):
            named = ", ".join(
                f"process {index} computes {computing[index] / usual(computing):.1f}x "
                f"as long as the median"
                for index in slow
            )
            self.text += f", slow: {named}"


def collective_names(compiled: Any) -> frozenset[str]:
    """Names of the instructions of a compiled program that communicate."""
    return frozenset(_COLLECTIVE.findall(compiled.as_text()))


def traced(run: Callable[[], T], names: frozenset[str]) -> tuple[T, float | None]:
    """What `run` gives, and the seconds in which this process was communicating meanwhile.

    None if there is no saying: only one trace can be taken at a time, and the user's comes first.
    """
    folder = Path(tempfile.mkdtemp(prefix="gtjax-trace-"))
    try:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError:
            return run(), None
        try:
            result = run()
        finally:
            jax.profiler.stop_trace()
        return result, communication_seconds(folder, names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def communication_seconds(folder: Path, names: frozenset[str]) -> float:
    """Seconds in which one of these instructions ran, of the traces in a folder."""
    spans = [
        (event.start_ns, event.start_ns + event.duration_ns)
        for path in folder.rglob("*.xplane.pb")
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
        if event.name.removeprefix("%") in names
    ]
    return 1e-9 * covered(spans)


def covered(spans: list[tuple[float, float]]) -> float:
    """The length of what intervals cover together."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def stragglers(computing: list[float]) -> list[int]:
    """Processes that compute longer than the median by more than half."""
    limit = SLOWER * usual(computing)
    if not limit:  # the sample was too short to tell
        return []
    return [index for index, each in enumerate(computing) if each > limit]


def usual(computing: list[float]) -> float:
    """The median; of two in the middle the lower, or one of two would have to be 3x as slow."""
    return statistics.median_low(computing)

"""What a step's time goes to, from a trace of one dispatch; and who is slow.

All processes of a run take equally long for a step, since they wait for each other in it. What
tells them apart is how much of that time each spends in collectives: who is slow waits for nobody.
A trace of a dispatch costs some tenths of a second, so one is taken now and then, of a few steps.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax

from gtjax.distributed.team import Team

T = TypeVar("T")
Event = tuple[str, float, float]  # name, start and end

FIRST_TURN = 3  # that is sampled
EVERY_SECONDS = 120.0  # between samples
SHORT_SECONDS = 3.0  # nobody asks what a step is made of that soon, unless it communicates
MOST_STEPS = 20  # in a sample: thousands of small steps would make a large trace

COMMUNICATION = "communication"
MOST_SLOW = 8  # that are named
SLOWER = 1.5  # times the median of computing, from which on a process is named


class Trace(NamedTuple):
    """What a trace says of a dispatch."""

    communicating: float  # seconds in which anything in this process was
    busy: float  # seconds in which anything was that is known by name
    spent: dict[str, float]  # seconds by kind, added up over threads and devices


class Sampler:
    """Takes a sample of a run now and then, and says what came of it."""

    def __init__(self, team: Team):
        self._team, self.text = team, ""
        self.communication: float | None = None  # share of a step, as last sampled
        self.slow: dict[int, float] = {}  # who computes so many times as long as the median
        self._kinds: Mapping[str, str] = {}
        self._communicates = False
        self._turns, self._at, self._began = 0, 0.0, 0.0
        self._spent: dict[str, float] = {}

    def watch(self, kinds: Mapping[str, str]) -> None:
        """What a step is made of, from now on: the kind of each instruction, by name."""
        self._kinds, self._communicates = kinds, COMMUNICATION in kinds.values()
        self._spent, self._began = {}, time.monotonic()

    @property
    def shares(self) -> dict[str, float] | None:
        """What share of the steps that were sampled each kind took; None if there is no saying."""
        total = sum(self._spent.values())
        return {kind: took / total for kind, took in self._spent.items()} if total else None

    def is_due(self) -> bool:
        """Whether to sample the next turn; the first few are not like the others."""
        self._turns += 1
        now = time.monotonic()
        first = not self._at and (self._communicates or now - self._began > SHORT_SECONDS)
        due = (
            bool(self._kinds)
            and self._turns >= FIRST_TURN
            and (first or (bool(self._at) and now - self._at > EVERY_SECONDS))
        )
        if due:
            self._at = now
        return due

    def sample(self, run: Callable[[], T]) -> tuple[T, float]:
        """Run a turn, in all processes, and see what each of them does; also its seconds."""
        result, seconds, trace = traced(run, self._kinds)
        here = None if trace is None else trace._asdict()
        self._learn(self._team.gathered(here, lambda found: summary(seconds, found)))
        return result, seconds

    def saw(self, seconds: float, traces: list[Trace]) -> None:
        """What every process did in so many seconds."""
        self._learn(summary(seconds, [each._asdict() for each in traces]))

    def _learn(self, known: dict[str, Any] | None) -> None:
        if known is None:
            return
        share, now = known["share"], known["spent"]
        if now is not None:
            share = now.get(COMMUNICATION, 0.0) / sum(now.values())
            self._spent = {kind: self._spent.get(kind, 0.0) + took for kind, took in now.items()}
        if not self._communicates:
            return
        self.communication = max(0.0, share)
        self.text = f"communication {self.communication:.0%}"
        self.slow = dict(known["slow"])
        if self.slow:
            named = ", ".join(
                f"process {index} computes {ratio:.1f}x as long as the median"
                for index, ratio in self.slow.items()
            )
            self.text += f", slow: {named}"


def summary(seconds: float, found: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """What the traces of all processes come to; None if one has none.

    As JSON, and no longer for many processes: of those who are slow, the slowest.
    """
    if None in found:
        return None
    traces = [Trace(**each) for each in found if each is not None]
    computing = [max(0.0, seconds - each.communicating) for each in traces]
    spent = None
    # Where a trace names most of what ran: some chips have names of their own for it.
    if all(each.busy > seconds / 2 for each in traces):
        kinds = {kind for each in traces for kind in each.spent}
        spent = {kind: sum(each.spent.get(kind, 0.0) for each in traces) for kind in sorted(kinds)}
    slow = sorted(stragglers(computing), key=lambda index: -computing[index])[:MOST_SLOW]
    return {
        "share": 1 - usual(computing) / max(seconds, 1e-9),
        "spent": spent,
        "slow": [[index, computing[index] / usual(computing)] for index in sorted(slow)],
    }


def traced(run: Callable[[], T], kinds: Mapping[str, str]) -> tuple[T, float, Trace | None]:
    """What `run` gives, its seconds, and what this process did meanwhile.

    None if there is no saying: only one trace can be taken at a time, and the user's comes first.
    """
    folder = Path(tempfile.mkdtemp(prefix="gtjax-trace-"))
    try:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        try:
            jax.profiler.start_trace(folder, profiler_options=options)
        except RuntimeError:
            started = time.monotonic()
            result = run()
            return result, time.monotonic() - started, None
        try:
            started = time.monotonic()
            result = run()
            seconds = time.monotonic() - started
        finally:
            jax.profiler.stop_trace()
        return result, seconds, read_trace(folder, kinds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_trace(folder: Path, kinds: Mapping[str, str]) -> Trace:
    """What the traces in a folder say of the instructions whose kinds are known."""
    spans: list[tuple[float, float]] = []
    communicating: list[tuple[float, float]] = []
    spent = dict.fromkeys(kinds.values(), 0.0)
    for path in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                events = [
                    (name, event.start_ns, event.start_ns + event.duration_ns)
                    for event in line.events
                    if (name := event.name.removeprefix("%")) in kinds
                ]
                for name, took in own_times(events):
                    spent[kinds[name]] += 1e-9 * took
                spans += [event[1:] for event in events]
                communicating += [e[1:] for e in events if kinds[e[0]] == COMMUNICATION]
    return Trace(1e-9 * covered(communicating), 1e-9 * covered(spans), spent)


def own_times(events: Iterable[Event]) -> Iterator[tuple[str, float]]:
    """How long each event of a thread took without those inside it, such as a loop's body."""
    running: list[tuple[str, float]] = []  # name and end, the innermost last
    at = 0.0
    for name, start, end in sorted(events, key=lambda event: (event[1], -event[2])):
        while running and running[-1][1] <= start:
            inner, stop = running.pop()
            yield inner, max(0.0, stop - at)
            at = max(at, stop)
        if running:
            yield running[-1][0], max(0.0, start - at)
        at = max(at, start)
        running.append((name, end))
    while running:
        inner, stop = running.pop()
        yield inner, max(0.0, stop - at)
        at = max(at, stop)


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

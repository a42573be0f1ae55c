"""Holds a plan to what it promised, and gives the runner-up a try where it was wrong."""

from __future__ import annotations

import statistics
from typing import Any

from gtjax.planner import Candidate, Plan

OFF = 1.5  # times the prediction, from which on the runner-up is tried
WATCHED = 3  # dispatches that are timed before anything is decided, after a first that is not


class Watch:
    """Times of steps under the plan, and under its runner-up if that is tried.

    Every strategy gives the same gradients, so steps that are taken while trying are not lost.
    """

    def __init__(self, plan: Plan, *, may_change: bool):
        assert plan.chosen is not None
        self.plan, self.running = plan, plan.chosen
        self._may_change = may_change
        self._seconds: dict[str, list[float]] = {}
        self._warm = False
        self._settled = not may_change or plan.runner_up is None

    def saw(self, seconds_per_step: float) -> None:
        """Note what one dispatch took."""
        if not self._warm:  # the first run of a program is not like the others
            self._warm = True
            return
        self._seconds.setdefault(_key(self.running), []).append(seconds_per_step)

    def better(self) -> Candidate | None:
        """What to change to now, if anything."""
        times = self._seconds.get(_key(self.running), [])
        if self._settled or len(times) < WATCHED:
            return None
        first, other = self.plan.chosen, self.plan.runner_up
        assert first is not None
        assert first.price is not None
        assert other is not None
        if self.running is first:
            if statistics.median(times) <= OFF * first.price.seconds:
                self._settled = True
                return None
            return self._change_to(other)
        self._settled = True
        before = statistics.median(self._seconds[_key(first)])
        return self._change_to(first) if before < statistics.median(times) else None

    def _change_to(self, candidate: Candidate) -> Candidate:
        self.running, self._warm = candidate, False
        return candidate

    def result(self) -> dict[str, Any]:
        """For `result.json`: what was promised, and what was seen."""
        price = self.running.price
        assert price is not None
        times = self._seconds.get(_key(self.running))
        known = {
            "strategy": self.running.option.name,
            "predicted_seconds": price.seconds,
            "predicted_peak_bytes": price.peak_bytes,
            "why": self.plan.flip,
            "tried": {name: statistics.median(times) for name, times in self._seconds.items()},
        }
        return known | _against(statistics.median(times) if times else None, price.seconds)


def kept_promise(stored: dict[str, Any], measured: float) -> dict[str, Any]:
    """The same from a plan as it is stored, for a run that another process began."""
    chosen = stored["chosen"]
    known = {
        "strategy": chosen["name"],
        "predicted_seconds": chosen["seconds"],
        "predicted_peak_bytes": chosen["peak_bytes"],
        "why": stored["why"],
        "tried": {},
    }
    return known | _against(measured, chosen["seconds"])


def _against(measured: float | None, predicted: float) -> dict[str, float | None]:
    ratio = None if measured is None else measured / predicted
    return {"measured_seconds": measured, "ratio": ratio}


def _key(candidate: Candidate) -> str:
    return f"{candidate.option.name} on {candidate.option.mesh}"

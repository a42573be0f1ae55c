"""Where the time of a run goes: every moment counts for one thing, and all of them for the sum."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

OTHER = "other"


class Stopwatch:
    """Seconds by what they went into; inside of something, something else can take over."""

    def __init__(self):
        self._what, self._since = OTHER, time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """From here on it is `what` that takes time; afterwards again what was before."""
        before = self._turn_to(what)
        try:
            yield
        finally:
            self._turn_to(before)

    @property
    def seconds(self) -> dict[str, float]:
        """Until now, in the order in which things began."""
        self._turn_to(self._what)
        other = self._seconds.get(OTHER, 0.0)
        known = {what: took for what, took in self._seconds.items() if what != OTHER}
        return known | {OTHER: other}

    def _turn_to(self, what: str) -> str:
        now = time.monotonic()
        self._seconds[self._what] = self._seconds.get(self._what, 0.0) + now - self._since
        self._seconds.setdefault(what, 0.0)
        before, self._what, self._since = self._what, what, now
        return before

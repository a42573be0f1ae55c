"""Where the time went: every moment once."""

from __future__ import annotations

import time

import pytest

from gtjax.runs.stopwatch import OTHER, Stopwatch


def test_what_is_inside_of_something_counts_for_itself(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Stopwatch()
    now[0] += 1
    with clock.on("planning"):
        now[0] += 10
        with clock.on("reading"):
            now[0] += 100
        now[0] += 20

    def fails():
        with clock.on("reading"):
            now[0] += 1000
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
    now[0] += 2
    assert clock.seconds == {"planning": 30, "reading": 1100, OTHER: 3}
    assert list(clock.seconds)[-1] == OTHER
    assert sum(clock.seconds.values()) == now[0] - 100

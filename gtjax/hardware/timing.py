"""Seconds of compiled programs, with all processes of a run in step.

Every process has to run the same collectives in the same order, so whatever is decided by a time,
such as how often to repeat, is decided by the longest that any process saw.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

ENOUGH = 0.05  # seconds of repetitions
MOST = 7  # repetitions


def seconds_of(program: Callable[..., Any], *arguments: Any) -> float:
    """The median of a few runs after a first one that is not counted."""
    first = agreed(_once(program, arguments))
    if first > 0.25:  # too long to repeat, and too long for a warm-up to matter
        return first
    repeats = int(np.clip(ENOUGH / max(first, 1e-6), 3, MOST))
    times = [_once(program, arguments) for _ in range(repeats)]
    return agreed(statistics.median(times))


def _once(program: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - started


def agreed(seconds: float) -> float:
    """The longest that any process saw."""
    if jax.process_count() == 1:
        return seconds
    from jax.experimental import multihost_utils

    return float(np.max(multihost_utils.process_allgather(np.float32(seconds))))

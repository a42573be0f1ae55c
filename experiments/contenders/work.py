"""What a contender offers its process: things to time, what to check, and what it will need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Absent(Exception):  # noqa: N818 - nothing went wrong
    """A contender that cannot take part here, and why."""


@dataclass(frozen=True)
class Work:
    """A case made ready by one contender.

    `operations` run to their end before they return, and what they return is dropped after the
    clock has stopped. `results` runs them once and gives what the reference is compared with; it
    also warms up.
    """

    operations: dict[str, Callable[[], Any]]
    results: Callable[[], dict[str, np.ndarray]]
    needs_bytes: int
    packages: tuple[str, ...]  # whose versions belong into the record
    facts: dict[str, Any] = field(default_factory=dict)

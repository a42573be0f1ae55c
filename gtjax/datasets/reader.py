"""What every file format provides: how to recognise it, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gtjax.datasets.limits import Limits
from gtjax.graph import Graph


@dataclass(frozen=True)
class ReadOptions:
    """What the caller of `load` may choose, whatever the format.

    split: number of the stored split, or of the draw where the format stores none.
    seed:  of the draw; not used where the format stores its splits.
    """

    split: int = 0
    seed: int = 0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Reader:
    """One file format: `recognises` looks at the name or a few bytes, `read` does the work."""

    name: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, ReadOptions], Graph]

"""The rule by which a plan chooses: the fastest; of those about as fast, what moves least."""

from __future__ import annotations

from collections.abc import Iterable

from gtjax.planner.plan import Candidate

TIES = 1.02  # of plans as close as this the one that moves least is taken, or else the first


def fastest(candidates: Iterable[Candidate], capacity: float) -> Candidate | None:
    """Of those that fit in the memory of a device, by the rule; None if none does."""
    able = [c for c in candidates if c.price is not None and c.price.peak_bytes <= capacity]
    if not able:
        return None
    least = min(c.price.seconds for c in able if c.price)
    close = [c for c in able if c.price and c.price.seconds <= TIES * least]
    return min(close, key=lambda c: c.price.moved_bytes if c.price else 0.0)

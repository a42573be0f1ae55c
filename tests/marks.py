"""Which of many combinations are quick: enough that each of their parts occurs, and no more."""

from __future__ import annotations

import pytest


def slow(*values, name=None):
    """A case for `pytest -m slow`."""
    return pytest.param(*values, id=name, marks=pytest.mark.slow)


def in_turn(first, second, keep=1, every=1):
    """All pairs; quick are those in which each of the second meets `keep` of the first in turn.

    Of the second, one in `every` is quick.
    """
    return [
        (a, b, number % every == 0 and (place - number // every * keep) % len(first) < keep)
        for number, b in enumerate(second)
        for place, a in enumerate(first)
    ]

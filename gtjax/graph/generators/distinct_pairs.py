"""Undirected edges without repetition: draw pairs until enough different ones are found."""

from collections.abc import Callable

import numpy as np

from gtjax.core.errors import UserError

DrawPairs = Callable[[int], tuple[np.ndarray, np.ndarray]]

_MAX_ROUNDS = 64


def distinct_pairs(
    draw: DrawPairs, *, count: int, num_nodes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Exactly `count` different pairs `low < high` out of those that `draw(how many)` returns.

    Loops and repetitions are dropped and drawn again, so a skewed `draw` flattens a little where
    it is dense. Returned as int32 (nodes number at most 2^31), ordered by (low, high).
    """
    codes = np.empty(0, np.int64)
    possible = num_nodes * (num_nodes - 1) // 2
    for _ in range(_MAX_ROUNDS if count <= possible else 0):
        missing = count - len(codes)
        if missing <= 0:
            break
        # A few more than are missing, since some will repeat: saves the small last rounds.
        left, right = draw(missing + missing // 16 + 64)
        low = np.minimum(left, right).astype(np.int64)
        high = np.maximum(left, right)
        fresh = (low * num_nodes + high)[low != high]
        codes = _sorted_unique(np.concatenate([codes, fresh]))
    if len(codes) < count:
        raise UserError(
            f"edges are distinct pairs: {count:,} of {possible:,} possible pairs of "
            f"{num_nodes:,} nodes are too many to draw. Ask for fewer edges or more nodes."
        )
    if len(codes) > count:
        kept = np.ones(len(codes), bool)
        kept[rng.choice(len(codes), len(codes) - count, replace=False, shuffle=False)] = False
        codes = codes[kept]
    low, high = np.divmod(codes, num_nodes)
    return low.astype(np.int32), high.astype(np.int32)


def both_directions(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers of every pair taken both ways."""
    return np.concatenate([low, high]), np.concatenate([high, low])


def _sorted_unique(codes: np.ndarray) -> np.ndarray:
    codes.sort()
    keep = np.ones(len(codes), bool)
    np.not_equal(codes[1:], codes[:-1], out=keep[1:])
    return codes[keep]

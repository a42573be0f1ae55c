"""Weights that balance the work of parts, and the cut of a sequence of nodes by them."""

from __future__ import annotations

import numpy as np

NODE_WEIGHT = 0.01  # of a node beside its in-edges, in mean degrees: it spreads isolated nodes


def work_n(degrees_n: np.ndarray) -> np.ndarray:
    """What each node adds to its part: its in-edges, and a little for being there."""
    mean_degree = degrees_n.mean() if len(degrees_n) else 0.0
    return degrees_n + NODE_WEIGHT * max(1.0, mean_degree)


def split_evenly(weight_n: np.ndarray, num_parts: int) -> np.ndarray:
    """Cut a sequence into stretches of nearly equal weight: the part of each item, int32.

    Each item goes where its middle falls, so no stretch is off by more than one item's weight.
    """
    middle_n = np.cumsum(weight_n, dtype=np.float64) - 0.5 * weight_n
    part_n = (middle_n * (num_parts / weight_n.sum(dtype=np.float64))).astype(np.int32)
    return np.minimum(part_n, num_parts - 1)

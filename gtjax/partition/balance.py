"""What a node adds to the work of its part, and how far parts may differ in it.

Every device waits for the one with most in-edges, so in-edges are what is balanced, strictly. Nodes
pad memory and dense layers, so they are bounded too, but more loosely, since equal in both a graph
cuts worse. On ogbn-arxiv in 8 parts `streaming` cuts 0.23 of the edges at 1.5 and at 1.25 times the
mean number of nodes, and 0.33 at 1.1. METIS, repaired afterwards, cuts 0.19 at 1.5 and 0.22 at
1.25, where the largest halo has grown by half: it keeps 1.5, and the planner compares the two.
"""

from __future__ import annotations

import numpy as np

EDGE_SLACK = 0.03
NODE_SLACK = 0.25
METIS_NODE_SLACK = 0.5
SLACK_C = np.array([EDGE_SLACK, NODE_SLACK])
METIS_SLACK_C = np.array([EDGE_SLACK, METIS_NODE_SLACK])

NODE_WEIGHT = 0.01  # of a node beside its in-edges, in mean degrees: it spreads isolated nodes


def work_nc(degrees_n: np.ndarray) -> np.ndarray:
    """In-edges and nodes, as the two things to balance."""
    return np.stack([degrees_n, np.ones(len(degrees_n))], axis=1).astype(np.float64)


def work_n(degrees_n: np.ndarray) -> np.ndarray:
    """What each node adds to its part as one number: its in-edges, and a little for being there."""
    mean_degree = degrees_n.mean() if len(degrees_n) else 0.0
    return degrees_n + NODE_WEIGHT * max(1.0, mean_degree)


def split_evenly(weight_n: np.ndarray, num_parts: int) -> np.ndarray:
    """Cut a sequence into stretches of nearly equal weight: the part of each item, int32.

    Each item goes where its middle falls, so no stretch is off by more than one item's weight.
    """
    middle_n = np.cumsum(weight_n, dtype=np.float64) - 0.5 * weight_n
    part_n = (middle_n * (num_parts / weight_n.sum(dtype=np.float64))).astype(np.int32)
    return np.minimum(part_n, num_parts - 1)

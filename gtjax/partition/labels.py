"""The label of every node, what labels carry, and moves that keep to their capacities."""

from __future__ import annotations

import numpy as np

from gtjax.graph.csr import stable_order

LITTLE = 8  # a node weighs little where its share is so many times smaller than its largest


class Labels:
    """The label of every node, and what the labels carry.

    weight_nc:  what each node weighs, by constraint: the first is kept to strictly.
    capacity_c: what a label may carry of each. The other constraints let pass a node that weighs
        little of theirs beside its own heaviest, so that a part with too many nodes can still take
        a hub in exchange for many small nodes.
    """

    def __init__(
        self, label_n: np.ndarray, weight_nc: np.ndarray, capacity_c: np.ndarray, count: int
    ):
        """Start from these labels, out of 0..count-1, whether they keep to the capacity or not."""
        self.label_n = label_n.astype(np.int64)
        self.weight_nc = weight_nc
        self.capacity_c = capacity_c
        self.count = count
        self.load_lc = sum_rows(self.label_n, weight_nc, count)

    def fill_l(self) -> np.ndarray:
        """Each label's load over its capacity, of the constraint where that is largest."""
        return (self.load_lc / self.capacity_c).max(axis=1)

    def fits(self, node_m: np.ndarray, label_m: np.ndarray) -> np.ndarray:
        """Whether each move alone would keep to the capacity."""
        weight_mc = self.weight_nc[node_m]
        after_mc = self.load_lc[label_m] + weight_mc
        return np.all(after_mc <= self._limit_mc(weight_mc), axis=1)

    def move(self, node_m: np.ndarray, label_m: np.ndarray) -> int:
        """Make as many of the moves as the labels have room for, first ones first."""
        order = stable_order(label_m, self.count)
        node_m, label_m = node_m[order], label_m[order]
        weight_mc = self.weight_nc[node_m]
        after_mc = self.load_lc[label_m] + sums_within_runs(weight_mc, label_m)
        kept_m = np.all(after_mc <= self._limit_mc(weight_mc), axis=1)
        node_m, label_m, weight_mc = node_m[kept_m], label_m[kept_m], weight_mc[kept_m]
        np.subtract.at(self.load_lc, self.label_n[node_m], weight_mc)
        np.add.at(self.load_lc, label_m, weight_mc)
        self.label_n[node_m] = label_m
        return len(node_m)

    def _limit_mc(self, weight_mc: np.ndarray) -> np.ndarray:
        share_mc = weight_mc / self.capacity_c
        little_mc = LITTLE * share_mc < share_mc.max(axis=1, keepdims=True)
        little_mc[:, 0] = False
        return np.where(little_mc, np.inf, self.capacity_c)


def starts_of_runs(sorted_v: np.ndarray) -> np.ndarray:
    """Where runs of equal values begin."""
    is_start = np.ones(len(sorted_v), bool)
    is_start[1:] = sorted_v[1:] != sorted_v[:-1]
    return np.flatnonzero(is_start)


def sums_within_runs(weight_mc: np.ndarray, key_m: np.ndarray) -> np.ndarray:
    """The weight up to each item, itself included, since the start of its run of equal keys."""
    starts = starts_of_runs(key_m)
    sums_mc = np.cumsum(weight_mc, axis=0)
    before_mc = sums_mc[starts] - weight_mc[starts]
    return sums_mc - np.repeat(before_mc, np.diff(starts, append=len(key_m)), axis=0)


def sum_rows(key_n: np.ndarray, weight_nc: np.ndarray, count: int) -> np.ndarray:
    """Add up the rows that share a key of 0..count-1."""
    columns = [np.bincount(key_n, weights=column, minlength=count) for column in weight_nc.T]
    return np.stack(columns, axis=1)

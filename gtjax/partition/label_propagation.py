"""Label propagation under capacities: every node joins the label most of its neighbours carry.

One read of the edges, in chunks, is one round (Raghavan, Albert and Kumara 2007; with capacities
Meyerhenke, Sanders and Schulz 2014). The same rounds grow clusters from single nodes and move nodes
between parts. A node is decided once all its edges have been read: in a stream grouped by receiver
that is at once, in one that is not its votes are kept until then, the lightest forgotten first when
there are too many. State is linear in nodes and labels; time is a sort of every chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from gtjax.graph.csr import stable_order

WeightedChunks = Callable[[], Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]]
"""Gives a new iterator over (receivers, senders, weights), which reads all edges once."""

LITTLE = 8  # a node weighs little where its share is so many times smaller than its largest
NEARLY_FULL = 0.99  # of the capacity; such labels give too while another is above it,
MAKE_ROOM = 0.97  # until they are down to this
KEPT_VOTES = 4  # a node, of nodes whose edges are not all read yet


class Votes(NamedTuple):
    """How much of a node's edges come from each label; sorted by node, then label."""

    node_v: np.ndarray
    label_v: np.ndarray
    weight_v: np.ndarray

    def where(self, keep_v: np.ndarray) -> Votes:
        """The votes that a mask keeps."""
        return Votes(*(array[keep_v] for array in self))


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


def propagate(
    chunks: WeightedChunks,
    degree_n: np.ndarray,
    labels: Labels,
    rng: np.random.Generator,
    *,
    relieve: bool = False,
) -> int:
    """One round: read all edges once and move nodes; returns how many moved.

    degree_n: how many times each node is a receiver in the chunks.
    relieve:  also move nodes out of labels above their capacity, at the least loss.
    """
    left_n = degree_n.copy()
    waiting_lc = labels.load_lc.copy() if relieve else None
    most = KEPT_VOTES * len(degree_n)
    kept = Votes(*(np.zeros(0, np.int64) for _ in range(3)))
    moved = 0
    for receivers, senders, weights in chunks():
        np.subtract.at(left_n, receivers, 1)
        votes = _tally(receivers, labels.label_n[senders], weights, kept, labels.count)
        is_complete_v = left_n[votes.node_v] == 0
        kept = _heaviest(votes.where(~is_complete_v), most)
        moved += _decide(votes.where(is_complete_v), labels, rng, waiting_lc)
    return moved + _decide(kept, labels, rng, waiting_lc)


def _tally(
    node_e: np.ndarray, label_e: np.ndarray, weight_e: np.ndarray, kept: Votes, count: int
) -> Votes:
    """Add up the votes of the chunk and those kept."""
    key_e = node_e.astype(np.int64) * count + label_e
    weight_e = weight_e.astype(np.int64)
    if len(kept.node_v):
        key_e = np.concatenate([kept.node_v * count + kept.label_v, key_e])
        weight_e = np.concatenate([kept.weight_v, weight_e])
    order = np.argsort(key_e)  # equal ones are added up: their order does not matter
    key_e = key_e[order]
    starts = starts_of_runs(key_e)
    key_v = key_e[starts]
    weight_v = np.add.reduceat(weight_e[order], starts) if len(starts) else weight_e
    node_v = key_v // count
    return Votes(node_v, key_v - node_v * count, weight_v)


def _heaviest(votes: Votes, most: int) -> Votes:
    if len(votes.node_v) <= most:
        return votes
    chosen = np.argpartition(-votes.weight_v, most)[:most]
    chosen.sort()
    return Votes(*(array[chosen] for array in votes))


def _decide(
    votes: Votes, labels: Labels, rng: np.random.Generator, waiting_lc: np.ndarray | None
) -> int:
    """Move nodes whose votes are all there."""
    if not len(votes.node_v):
        return 0
    starts = starts_of_runs(votes.node_v)
    node_d = votes.node_v[starts]
    number_v = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(votes.node_v)))
    is_own_v = votes.label_v == labels.label_n[votes.node_v]
    own_d = np.zeros(len(node_d))
    own_d[number_v[is_own_v]] = votes.weight_v[is_own_v]
    # The strongest label with room; equals are decided by lot, or the lowest number would grow.
    open_v = ~is_own_v
    open_v[open_v] = labels.fits(votes.node_v[open_v], votes.label_v[open_v])
    score_v = np.where(open_v, votes.weight_v + 0.5 * rng.random(len(votes.weight_v)), -1.0)
    best_d = np.maximum.reduceat(score_v, starts)
    label_d = np.zeros(len(node_d), np.int64)
    is_best_v = score_v == best_d[number_v]
    label_d[number_v[is_best_v]] = votes.label_v[is_best_v]
    gain_d = np.floor(best_d) - own_d
    moving = (best_d >= 0) & (gain_d > 0)
    order = np.argsort(-gain_d[moving], kind="stable")
    moved = labels.move(node_d[moving][order], label_d[moving][order])
    if waiting_lc is not None:
        alternative = np.where(best_d >= 0, label_d, -1)
        moved += _relieve(node_d, alternative, gain_d, labels, waiting_lc)
    return moved


def _relieve(
    node_d: np.ndarray,
    label_d: np.ndarray,
    gain_d: np.ndarray,
    labels: Labels,
    waiting_lc: np.ndarray,
) -> int:
    """Move nodes out of full labels, least loss first; -1 stands for the emptiest label.

    These nodes bear their share of the overload only, by the load that is still to be decided: the
    nodes that follow may do it at less loss. `waiting_lc` is that load, and is brought up to date.
    """
    share_lc = sum_rows(labels.label_n[node_d], labels.weight_nc[node_d], labels.count)
    fill_l = labels.fill_l()
    moved = 0
    # While one label is too full, those nearly full make room: the exchange may need them.
    for full in np.flatnonzero(fill_l > (NEARLY_FULL if fill_l.max() > 1 else 1.0)):
        c = int((labels.load_lc[full] / labels.capacity_c).argmax())
        allowed = labels.capacity_c[c] * (1.0 if fill_l[full] > 1 else MAKE_ROOM)
        portion = share_lc[full, c] / max(share_lc[full, c], waiting_lc[full, c], 1.0)
        weight_d = labels.weight_nc[node_d, c]
        inside = np.flatnonzero((labels.label_n[node_d] == full) & (weight_d > 0))
        inside = inside[np.argsort(-gain_d[inside] / weight_d[inside], kind="stable")]
        before = np.cumsum(weight_d[inside]) - weight_d[inside]
        inside = inside[before < portion * (labels.load_lc[full, c] - allowed)]
        emptiest = int(labels.fill_l().argmin())
        target = np.where(label_d[inside] < 0, emptiest, label_d[inside])
        moved += labels.move(node_d[inside], target)
    np.maximum(waiting_lc - share_lc, 0, out=waiting_lc)
    return moved


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

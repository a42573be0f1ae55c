"""Label propagation under capacities: every node joins the label most of its neighbours carry.

One read of the edges, in chunks, is one round (Raghavan, Albert and Kumara 2007; with capacities
Meyerhenke, Sanders and Schulz 2014). The same rounds grow clusters from single nodes and move nodes
between parts. A node is decided once all its edges have been read: in a stream grouped by receiver
that is at once, in one that is not its votes are kept until then, the lightest forgotten first when
there are too many. State is linear in nodes and labels. What each node would choose is in
`choices.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gtjax.partition.choices import (
    Choices,
    Chunk,
    Votes,
    choices_of_rows,
    choices_of_votes,
    joined,
)
from gtjax.partition.labels import Labels, starts_of_runs, sum_rows
from gtjax.partition.native import library

WeightedChunks = Callable[[], Iterator[Chunk]]
"""Gives a new iterator that reads all edges once."""

NEARLY_FULL = 0.99  # of the capacity; such labels give too while another is above it,
MAKE_ROOM = 0.97  # until they are down to this
KEPT_VOTES = 4  # a node, of nodes whose edges are not all read yet


def propagate(
    chunks: WeightedChunks,
    degree_n: np.ndarray,
    labels: Labels,
    rng: np.random.Generator,
    *,
    relieve: bool = False,
    native: bool = True,
) -> int:
    """One round: read all edges once and move nodes; returns how many moved.

    degree_n: how many times each node is a receiver in the chunks.
    relieve:  also move nodes out of labels above their capacity, at the least loss.
    native:   whether native code may be used, where it is there.
    """
    left_n = degree_n.copy()
    waiting_lc = labels.load_lc.copy() if relieve else None
    most = KEPT_VOTES * len(degree_n)
    kept = Votes(*(np.zeros(0, np.int64) for _ in range(3)))
    lots = rng.integers(2**64, dtype=np.uint64)  # by which equal labels are chosen from
    moved = 0
    for chunk in chunks():
        found, (receivers, senders, weights) = None, chunk
        if native and library() is not None:
            found, (receivers, senders, weights) = choices_of_rows(chunk, degree_n, labels, lots)
        if len(receivers):
            np.subtract.at(left_n, receivers, 1)
            votes = _tally(receivers, labels.label_n[senders], weights, kept, labels.count)
            is_complete_v = left_n[votes.node_v] == 0
            kept = _heaviest(votes.where(~is_complete_v), most)
            found = joined(found, choices_of_votes(votes.where(is_complete_v), labels, lots))
        if found is not None:
            moved += _decide(found, labels, waiting_lc)
    return moved + _decide(choices_of_votes(kept, labels, lots), labels, waiting_lc)


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


def _decide(choices: Choices, labels: Labels, waiting_lc: np.ndarray | None) -> int:
    """Move nodes, those that gain most first."""
    if not len(choices.node_d):
        return 0
    node_d, label_d, best_d, own_d = choices
    gain_d = np.floor(best_d) - own_d
    moving = np.flatnonzero((label_d >= 0) & (gain_d > 0))
    moving = moving[np.argsort(-gain_d[moving], kind="stable")]
    moved = labels.move(node_d[moving], label_d[moving])
    if waiting_lc is not None:
        moved += _relieve(node_d, label_d, gain_d, labels, waiting_lc)
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

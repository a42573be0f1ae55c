"""Cluster, contract, partition what is small, and refine on the way back: a V-cycle by streams.

The multilevel method (Hendrickson and Leland 1995; Karypis and Kumar 1998), with size-constrained
label propagation for both ways (Meyerhenke, Sanders and Schulz 2014), written so that the graph is
only ever read as a stream of chunks. What is kept of it are the labels of the nodes, and the edges
between clusters, of which the lightest are forgotten when there are too many.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gtjax.graph.csr import stable_order
from gtjax.partition.choices import Chunk
from gtjax.partition.label_propagation import WeightedChunks, propagate
from gtjax.partition.labels import Labels, sum_rows, sums_within_runs
from gtjax.partition.pairs import count_pairs

CLUSTER_ROUNDS = 3
REFINE_ROUNDS = 2
GROWN_ROUNDS = 8  # the same where the graph is small
CLUSTERS_A_PART = 64, 256  # at the finest level, least and most; half as many at each coarser one
NODES_A_CLUSTER = 64  # between the two
FEWEST_A_PART = 8
ENOUGH_A_PART = 40  # what small means: then parts are grown directly
STALLED = 0.9  # of the nodes are left as clusters
STARTS = 4  # of growing parts
TRIES = 4  # of everything below the finest level
MORE_ROUNDS = 2  # of refinement, while a part is too full
KEPT_PAIRS = 4  # of clusters, for each node
CHUNK_EDGES = 1 << 19


@dataclass(frozen=True)
class Level:
    """A graph as a stream, with what its nodes weigh."""

    chunks: WeightedChunks
    degree_n: np.ndarray
    weight_nc: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.degree_n)


def partition_level(
    level: Level, num_parts: int, slack_c: np.ndarray, rng: np.random.Generator, finer: int = 0
) -> np.ndarray:
    """The part of each node; no part above `1 + slack_c` of the mean where that is possible.

    finer: clusters a part that this level is contracted to; 0 at the finest level.
    """
    total_c = level.weight_nc.sum(axis=0)
    capacity_c = np.maximum((1 + slack_c) * total_c / num_parts, 1.0)
    tries = 1 if finer else TRIES  # below the stream all is in memory and cheap
    finer = max(FEWEST_A_PART, finer or clusters_a_part(level.num_nodes // num_parts))
    if level.num_nodes > ENOUGH_A_PART * num_parts:
        limit_c = total_c / (num_parts * finer)
        coarse, cluster_n = _contract(level, _cluster(level, limit_c, rng), limit_c)
        if coarse.num_nodes >= STALLED * level.num_nodes:
            coarse, packed_m = _contract(coarse, _pack(coarse, limit_c), limit_c)
            cluster_n = packed_m[cluster_n]
        if coarse.num_nodes < STALLED * level.num_nodes:
            found = [
                partition_level(coarse, num_parts, slack_c, rng, finer // 2) for _ in range(tries)
            ]
            owner_m = min(found, key=lambda owner_m: _cost(coarse, owner_m, capacity_c))
            return refine(level, owner_m[cluster_n], num_parts, capacity_c, rng, REFINE_ROUNDS)
    return _grow(level, num_parts, capacity_c, rng)


def clusters_a_part(nodes: int) -> int:
    """How many clusters the nodes of a part are put together to first."""
    least, most = CLUSTERS_A_PART
    return min(max(nodes // NODES_A_CLUSTER, least), most)


def refine(
    level: Level,
    owner_n: np.ndarray,
    num_parts: int,
    capacity_c: np.ndarray,
    rng: np.random.Generator,
    rounds: int,
) -> np.ndarray:
    """Move nodes to the parts where their neighbours are, and out of parts that are too full."""
    labels = Labels(owner_n, level.weight_nc, capacity_c, num_parts)
    for done in range(rounds + MORE_ROUNDS):
        if done >= rounds and labels.fill_l().max() <= 1:
            break
        if not propagate(level.chunks, level.degree_n, labels, rng, relieve=True):
            break
    return labels.label_n


def _cluster(level: Level, capacity_c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    heaviest_c = level.weight_nc.max(axis=0)
    alone_n = np.arange(level.num_nodes)
    capacity_c = np.maximum(capacity_c, heaviest_c)
    labels = Labels(alone_n, level.weight_nc, capacity_c, level.num_nodes)
    for _ in range(CLUSTER_ROUNDS):
        propagate(level.chunks, level.degree_n, labels, rng)
    return labels.label_n


def _pack(level: Level, capacity_c: np.ndarray) -> np.ndarray:
    """Put nodes together whose strongest neighbour is the same, up to a capacity.

    The leaves of a star have one neighbour, whose cluster is soon full: without this they would
    stay alone, and the graph as large as it was. METIS calls it two-hop matching.
    """
    strongest_n = np.full(level.num_nodes, -1)
    for receivers, senders, weights in level.chunks():
        order = np.argsort(weights, kind="stable")  # of equal places the last write stays
        strongest_n[receivers[order]] = senders[order]
    order = np.argsort(strongest_n, kind="stable")
    fill = sums_within_runs(level.weight_nc[order], strongest_n[order])
    bin_n = (fill / np.maximum(capacity_c, 1.0)).max(axis=1).astype(np.int64)
    label_n = np.empty(level.num_nodes, np.int64)
    pair = np.stack([strongest_n[order], bin_n], axis=1)
    label_n[order] = np.cumsum(np.any(np.diff(pair, axis=0, prepend=pair[:1]), axis=1))
    return label_n


def _contract(
    level: Level, cluster_n: np.ndarray, capacity_c: np.ndarray
) -> tuple[Level, np.ndarray]:
    """The graph of the clusters, and the number in it of each node."""
    _, cluster_n = np.unique(cluster_n, return_inverse=True)
    count = int(cluster_n.max()) + 1
    most = KEPT_PAIRS * level.num_nodes
    key_q, weight_q = count_pairs(level.chunks, cluster_n, count, most)
    linked_m = np.zeros(count, bool)
    linked_m[key_q // count] = True
    # Clusters without neighbours would never shrink in number: any of them can share a bin.
    weight_mc = sum_rows(cluster_n, level.weight_nc, count)
    lone = np.flatnonzero(~linked_m)
    fill = (np.cumsum(weight_mc[lone], axis=0) / np.maximum(capacity_c, 1.0)).max(axis=1)
    number_m = np.empty(count, np.int64)
    linked = int(linked_m.sum())
    number_m[linked_m] = np.arange(linked)
    number_m[lone] = linked + np.unique(fill.astype(np.int64), return_inverse=True)[1]
    cluster_n = number_m[cluster_n]
    total = int(number_m.max()) + 1
    coarse = _in_memory(number_m[key_q // count], number_m[key_q % count], weight_q, total)
    weight_mc = sum_rows(cluster_n, level.weight_nc, total)
    return Level(*coarse, weight_mc), cluster_n


def _in_memory(
    receivers_q: np.ndarray, senders_q: np.ndarray, weights_q: np.ndarray, count: int
) -> tuple[WeightedChunks, np.ndarray]:
    order = stable_order(receivers_q, count)
    receivers_q, senders_q, weights_q = receivers_q[order], senders_q[order], weights_q[order]
    degree_m = np.bincount(receivers_q, minlength=count)
    size = chunk_size(len(order), count)

    def chunks():
        start = 0
        while start < len(order):  # each with all edges of its nodes
            last = receivers_q[min(start + size, len(order)) - 1]
            end = int(np.searchsorted(receivers_q, last, side="right"))
            yield Chunk(receivers_q[start:end], senders_q[start:end], weights_q[start:end])
            start = end

    return chunks, degree_m


def chunk_size(num_edges: int, num_nodes: int) -> int:
    """Small enough that steps of a round see what others did, not much less than the state."""
    return int(np.clip(num_edges // 16, 1 << 10, max(CHUNK_EDGES, num_nodes // 2)))


def _grow(
    level: Level, num_parts: int, capacity_c: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Deal out the nodes of a small graph, heaviest first; the best of a few tries.

    A node goes to the part with most of its neighbours, less the fuller that is (linear
    deterministic greedy: Stanton and Kliot 2012).
    """
    edges = list(level.chunks())
    if not edges:
        edges = [(np.zeros(0, np.int64),) * 3]
    receivers, senders, weights = (np.concatenate(arrays) for arrays in zip(*edges, strict=True))
    order = stable_order(receivers, level.num_nodes)
    receivers, senders, weights = receivers[order], senders[order], weights[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(receivers, minlength=level.num_nodes))])
    share_n = (level.weight_nc / capacity_c).max(axis=1)
    found = []
    for _ in range(STARTS):
        noise_n = 1 + 0.5 * rng.random(level.num_nodes)
        owner_n = np.full(level.num_nodes, num_parts)
        load_pc = np.zeros((num_parts, len(capacity_c)))
        for node in np.argsort(-share_n * noise_n, kind="stable"):
            row = slice(offsets[node], offsets[node + 1])
            votes = np.bincount(owner_n[senders[row]], weights[row], num_parts + 1)[:num_parts]
            fill_p = ((load_pc + level.weight_nc[node]) / capacity_c).max(axis=1)
            score_p = (votes + 1e-3) * np.maximum(1 - fill_p, 0) - np.maximum(fill_p - 1, 0)
            part = int(score_p.argmax())
            owner_n[node] = part
            load_pc[part] += level.weight_nc[node]
        found.append(refine(level, owner_n, num_parts, capacity_c, rng, GROWN_ROUNDS))
    return min(found, key=lambda owner_n: _cost(level, owner_n, capacity_c))


def _cost(level: Level, owner_n: np.ndarray, capacity_c: np.ndarray) -> float:
    """Weight of the cut, and more where a part is above its capacity; reads the edges."""
    cut = sum(
        int(weights[owner_n[receivers] != owner_n[senders]].sum())
        for receivers, senders, weights in level.chunks()
    )
    load_pc = sum_rows(owner_n, level.weight_nc, int(owner_n.max()) + 1)
    return (cut + 1) * (1 + 10 * max(0.0, float((load_pc / capacity_c).max()) - 1))

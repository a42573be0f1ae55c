"""Parts that are drawn anew again and again, all of a size that is known beforehand.

The graph is cut once into several times more clusters than there are parts; every draw deals the
clusters out among the parts at random. Neighbours in one cluster stay together, and which clusters
meet in a part changes with every draw (the stochastic multiple partitions of Cluster-GCN, Chiang et
al. 2019). Choose it where parts train without each other, so that no edge stays cut for ever.

A draw costs a sort of the clusters, and its sizes a sum over pairs of clusters: the edges are
counted once. Bounds on the nodes of a part and on the edges within one are fixed at the start, as
the most of the first `FIRST_DRAWS` draws and `ROOM` more. A draw that exceeds them is replaced by
the next that does not, or after `ATTEMPTS` by draw 0, which fits: whatever is compiled for the
bounds takes every draw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gtjax.graph import Graph
from gtjax.partition.partition import Partition

FIRST_DRAWS = 32
ROOM = 1.05
ATTEMPTS = 20


@dataclass(frozen=True)
class Bounds:
    """What no part exceeds in any draw."""

    nodes: int
    edges: int  # with both ends in the part


class Regrouping:
    """Draws of parts from clusters of a graph, each a function of the seed and its number."""

    def __init__(self, graph: Graph, clusters: Partition, num_parts: int, seed: int = 0):
        clusters.check_fits(graph)
        self._cluster_n, self._num_parts, self._seed = clusters.owner_n, num_parts, seed
        self._nodes_c = clusters.sizes_p
        self._edges_cc = clusters.cut(graph).edges_pq

    @cached_property
    def bounds(self) -> Bounds:
        """Nodes and edges that a part holds in any draw; more than any has."""
        draws = [self._sizes(self._draw(number)) for number in range(FIRST_DRAWS)]
        nodes, edges = (max(int(sizes[i].max()) for sizes in draws) for i in (0, 1))
        return Bounds(int(nodes * ROOM) + 1, int(edges * ROOM) + 1)

    def partitions(self, number: int) -> Iterator[Partition]:
        """Draw `number`, then its replacements, for those to whom a draw is still too large."""
        for attempt in range(ATTEMPTS):
            part_c = self._draw(number, attempt)
            nodes_p, edges_p = self._sizes(part_c)
            if nodes_p.max() <= self.bounds.nodes and edges_p.max() <= self.bounds.edges:
                yield Partition(part_c[self._cluster_n], self._num_parts)
        yield Partition(self._draw(0)[self._cluster_n], self._num_parts)

    def _draw(self, number: int, attempt: int = 0) -> np.ndarray:
        edges_c = self._edges_cc.sum(axis=1)
        work_c = sum(count / max(1, count.sum()) for count in (edges_c, self._nodes_c))
        rng = np.random.default_rng([self._seed, number, attempt])
        return deal(np.asarray(work_c), self._num_parts, rng)

    def _sizes(self, part_c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of each part, and edges within it."""
        together_cc = part_c[:, None] == part_c
        edges_c = np.where(together_cc, self._edges_cc, 0).sum(axis=1)
        count = self._num_parts
        nodes_p = np.bincount(part_c, self._nodes_c, count).astype(np.int64)
        return nodes_p, np.bincount(part_c, edges_c, count).astype(np.int64)


def deal(work_c: np.ndarray, num_parts: int, rng: np.random.Generator) -> np.ndarray:
    """Deal out items of some work at random, equally many to each part: the part of each.

    They come in random order, as many at a time as there are parts; of these, the heaviest goes to
    the part that has the least so far. So no two parts are further apart than the heaviest item.
    """
    part_c = np.empty(len(work_c), np.int32)
    work_p = np.zeros(num_parts)
    shuffled = rng.permutation(len(work_c))
    for start in range(0, len(shuffled), num_parts):
        hand = shuffled[start : start + num_parts]
        hand = hand[np.argsort(-work_c[hand], kind="stable")]
        part_c[hand] = np.argsort(work_p, kind="stable")[: len(hand)]
        work_p[part_c[hand]] += work_c[hand]
    return part_c

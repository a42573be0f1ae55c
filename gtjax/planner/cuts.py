"""How a graph cuts, for every number of parts that a mesh may have.

A graph at hand is partitioned once, into as many parts as there are devices; fewer parts come of
joining those, which costs nothing, cuts nearly as well, and is counted exactly. The parts that are
chosen are then made by the partitioner itself. Of a graph that is not at hand only a share of edges
between parts is known, and halos lie between what that share can mean at best and at worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gtjax.core.progress import Progress
from gtjax.graph import Graph
from gtjax.partition import Cut, CutStats, EvenCut, Partition, partition_graph
from gtjax.partition.cut import cut_stats


@dataclass(frozen=True)
class Parts:
    """A partition by name, and what it cuts."""

    partitioner: str
    cut: Cut
    partition: Partition | None = None  # as the partitioner made it; None if joined or supposed
    joined: bool = False  # from smaller parts, so that `exact` cuts a little better


class GraphCuts:
    """Cuts of a graph at hand."""

    def __init__(self, graph: Graph, seed: int = 0, progress: Progress | None = None):
        self._graph, self._seed, self._progress = graph, seed, progress
        self._known: dict[tuple[str, int], Parts] = {}

    def parts(self, partitioner: str, count: int, most: int) -> Parts:
        """In `count` parts, by joining `most` if that divides."""
        if count == most or most % count or count == 1:
            return self.exact(partitioner, count)
        if (partitioner, count) not in self._known:
            whole = self.exact(partitioner, most)
            joined = join_parts(self._graph, whole.partition, whole.cut, count)
            self._known[partitioner, count] = Parts(partitioner, joined, joined=True)
        return self._known[partitioner, count]

    def exact(self, partitioner: str, count: int) -> Parts:
        """In `count` parts as the partitioner makes them."""
        known = self._known.get((partitioner, count))
        if known is None or known.joined:
            partition = partition_graph(
                self._graph, count, partitioner, seed=self._seed, progress=self._progress
            )
            known = Parts(partitioner, partition.cut(self._graph), partition)
            self._known[partitioner, count] = known
        return known


def join_parts(graph: Graph, partition: Partition | None, cut: Cut, count: int) -> CutStats:
    """Parts joined in groups of equal number, those with most edges between them first."""
    assert partition is not None
    assert isinstance(cut, CutStats)
    size = cut.num_parts // count
    between_pq = (cut.edges_pq + cut.edges_pq.T).astype(float)
    np.fill_diagonal(between_pq, 0)
    group_p = np.full(cut.num_parts, -1)
    for group in range(count):
        free = np.flatnonzero(group_p < 0)
        seed = free[between_pq[np.ix_(free, free)].sum(axis=1).argmax()]
        group_p[seed] = group
        for _ in range(size - 1):
            free = np.flatnonzero(group_p < 0)
            near = between_pq[np.ix_(free, np.flatnonzero(group_p == group))].sum(axis=1)
            group_p[free[near.argmax()]] = group
    return cut_stats(graph, group_p[partition.owner_n].astype(np.int32), count)


@dataclass(frozen=True)
class SupposedCuts:
    """Cuts of a graph of which only numbers are known.

    cut:  share of the edges between parts, in as many parts as there are devices; None if the
          graph is taken to cut as badly as a random one.
    bend: where between the fewest (0) and the most (1) distinct senders that share can mean.
    """

    nodes: int
    edges: int
    cut: float | None = None
    bend: float = 0.5
    node_imbalance: float = 1.1
    edge_imbalance: float = 1.03

    def parts(self, partitioner: str, count: int, most: int) -> Parts:
        """Supposed to be alike; fewer parts cut less, in proportion to what random ones would."""
        at_random = 1 - 1 / count
        cut = at_random
        if self.cut is not None and most > 1:
            cut = min(at_random, self.cut * at_random / (1 - 1 / most))
        supposed = EvenCut(
            count,
            self.nodes,
            self.edges,
            cut,
            halo=self.halo(cut, count),
            node_imbalance=self.node_imbalance if count > 1 else 1.0,
            edge_imbalance=self.edge_imbalance if count > 1 else 1.0,
        )
        return Parts(partitioner, supposed)

    def exact(self, partitioner: str, count: int) -> Parts:
        """Nothing is partitioned, and nothing is joined."""
        return self.parts(partitioner, count, count)

    def halo(self, cut: float, count: int) -> float:
        """Distinct senders of a part's cut edges: between all of a sender's edges and one each."""
        remote = self.nodes * (1 - 1 / count)
        crossing = cut * self.edges / count
        if not crossing or not remote:
            return 0.0
        degree = max(1.0, self.edges / self.nodes)
        most = remote * -math.expm1(-crossing / remote)  # senders drawn at random
        fewest = min(most, crossing / degree)
        return fewest ** (1 - self.bend) * most**self.bend

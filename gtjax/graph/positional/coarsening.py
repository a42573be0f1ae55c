"""Smaller and smaller versions of a graph, on which eigenvectors are cheap to begin with.

Every node joins the neighbour of highest random rank, that one joins its own, and so on; those
that outrank all their neighbours stand for the groups so formed. A graph of mean degree d shrinks
by a factor of about d + 1 a level. Merged this way the eigenvalue problem keeps its shape, and the
vectors of the small graph, spread over the groups, are a start for the large one (Barnard and
Simon, "A fast multilevel implementation of recursive spectral bisection", 1994).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Coarsening:
    """The merged graph, and which of its nodes each node of the finer graph went into."""

    adjacency: sp.csr_array
    group_n: np.ndarray

    @property
    def num_groups(self) -> int:
        """Number of nodes of the merged graph."""
        return len(self.adjacency.indptr) - 1

    def spread(self, coarse_vectors: np.ndarray, fine_degrees_n: np.ndarray) -> np.ndarray:
        """Vectors on the finer graph: orthonormal ones stay so, trivial ones stay trivial."""
        coarse_degrees = np.asarray(self.adjacency.sum(axis=1))
        share_n = np.sqrt(fine_degrees_n / coarse_degrees[self.group_n])
        return coarse_vectors[self.group_n] * share_n[:, None].astype(coarse_vectors.dtype)


def coarsen(adjacency: sp.csr_array, rng: np.random.Generator) -> Coarsening:
    """Merge groups of neighbours; every node has an edge, and weights of merged edges add up."""
    num_nodes = len(adjacency.indptr) - 1
    rank_n = rng.permutation(num_nodes).astype(np.int32)
    node_of_rank = np.empty(num_nodes, np.int32)
    node_of_rank[rank_n] = np.arange(num_nodes, dtype=np.int32)
    best = np.maximum.reduceat(rank_n[adjacency.indices], adjacency.indptr[:-1])
    leader_n = node_of_rank[np.maximum(best, rank_n)]
    while not np.array_equal(leader_n, further := leader_n[leader_n]):
        leader_n = further
    is_leader = np.zeros(num_nodes, bool)
    is_leader[leader_n] = True
    group_n = (np.cumsum(is_leader, dtype=np.int32) - 1)[leader_n]
    ones = np.ones(num_nodes, adjacency.dtype)
    starts = np.arange(num_nodes + 1, dtype=adjacency.indptr.dtype)
    member = sp.csr_array((ones, group_n, starts), shape=(num_nodes, int(is_leader.sum())))
    return Coarsening((member.T @ (adjacency @ member)).tocsr(), group_n)

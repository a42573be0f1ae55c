"""What a partition costs in figures: edges between every two parts, and the halos.

Everything that decides how long a step takes is here: how many edges each part computes, and how
many rows it needs from each other part. Counting takes time and memory linear in the edges (plus
the square of the parts): ten million edges take about a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.graph.csr import stable_order

_BLOCK = 1 << 22  # edges looked at together, so that temporaries stay small


@dataclass(frozen=True, eq=False)
class CutStats:
    """Counts of nodes by part and of edges and halo nodes by pair of parts.

    nodes_p:  nodes of each part.
    edges_pq: edges whose receiver is in part p and whose sender is in part q.
    halo_pq:  distinct nodes of part q that send to part p; 0 on the diagonal.
    """

    nodes_p: np.ndarray
    edges_pq: np.ndarray
    halo_pq: np.ndarray

    def __post_init__(self) -> None:
        shape = (self.num_parts, self.num_parts)
        for name in ("nodes_p", "edges_pq", "halo_pq"):
            array_p = np.asarray(getattr(self, name))
            wanted = shape[:1] if name == "nodes_p" else shape
            if array_p.shape != wanted or array_p.dtype.kind not in "iu":
                raise UserError(
                    f"{name} counts in integers {list(wanted)}; found {array_p.dtype} "
                    f"{list(array_p.shape)}. Count with cut_stats."
                )
            array_p = array_p.astype(np.int64)
            array_p.flags.writeable = False
            object.__setattr__(self, name, array_p)

    def __repr__(self) -> str:
        return (
            f"CutStats({self.num_parts} parts, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"cut {self.cut:.4f}, edge imbalance {self.edge_imbalance:.3f})"
        )

    @property
    def num_parts(self) -> int:
        """Number of parts, empty ones included."""
        return len(self.nodes_p)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the graph."""
        return int(self.nodes_p.sum())

    @property
    def num_edges(self) -> int:
        """Number of edges of the graph."""
        return int(self.edges_pq.sum())

    @property
    def edges_p(self) -> np.ndarray:
        """In-edges of each part: what it computes."""
        return self.edges_pq.sum(axis=1)

    @property
    def halo_p(self) -> np.ndarray:
        """Distinct nodes of other parts that each part needs."""
        return self.halo_pq.sum(axis=1)

    @property
    def sent_p(self) -> np.ndarray:
        """Rows that each part sends, those that several parts need as often."""
        return self.halo_pq.sum(axis=0)

    @property
    def own_edges_p(self) -> np.ndarray:
        """In-edges of each part that start in it as well."""
        return np.diagonal(self.edges_pq)

    @property
    def cut_edges_p(self) -> np.ndarray:
        """In-edges of each part that come from another part."""
        return self.edges_p - self.own_edges_p

    @property
    def cut(self) -> float:
        """Share of the edges that cross from one part to another; 0 without edges."""
        return float(self.cut_edges_p.sum() / max(1, self.num_edges))

    @property
    def edge_imbalance(self) -> float:
        """In-edges of the fullest part over the mean; 1 is perfect."""
        return _imbalance(self.edges_p)

    @property
    def node_imbalance(self) -> float:
        """Nodes of the fullest part over the mean; 1 is perfect."""
        return _imbalance(self.nodes_p)

    def reordered(self, order_p: np.ndarray) -> CutStats:
        """The same cut with part `order_p[i]` as number i."""
        order_p = np.asarray(order_p)
        if not np.array_equal(np.sort(order_p), np.arange(self.num_parts)):
            raise UserError(
                f"an order of parts names each of 0..{self.num_parts - 1} once; "
                f"found {order_p.tolist()}. Pass a permutation."
            )
        pairs = np.ix_(order_p, order_p)
        return CutStats(self.nodes_p[order_p], self.edges_pq[pairs], self.halo_pq[pairs])

    def to_json(self) -> dict[str, Any]:
        """The counts, and the figures that follow from them, ready for JSON."""
        return {
            "num_parts": self.num_parts,
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "cut": self.cut,
            "node_imbalance": self.node_imbalance,
            "edge_imbalance": self.edge_imbalance,
            "nodes_p": self.nodes_p.tolist(),
            "edges_pq": self.edges_pq.tolist(),
            "halo_pq": self.halo_pq.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> CutStats:
        """What `to_json` was called on."""
        names = ("nodes_p", "edges_pq", "halo_pq")
        return cls(*(np.asarray(stored[name], np.int64) for name in names))


@dataclass(frozen=True)
class EvenCut:
    """A cut that is not counted but supposed: all parts alike, and all pairs of parts too.

    For graphs that are not at hand. Figures of pairs would take the square of the parts.
    """

    num_parts: int
    num_nodes: int
    num_edges: int
    cut: float  # share of the edges between parts
    halo: float  # distinct nodes of other parts that a part needs
    edge_imbalance: float = 1.0
    node_imbalance: float = 1.0

    @property
    def nodes_p(self) -> np.ndarray:
        """Nodes of each part: as many as the largest is supposed to have."""
        return self._each(self.num_nodes * self.node_imbalance / self.num_parts)

    @property
    def edges_p(self) -> np.ndarray:
        """In-edges of each part."""
        return self._each(self.num_edges * self.edge_imbalance / self.num_parts)

    @property
    def own_edges_p(self) -> np.ndarray:
        """In-edges of each part that start in it as well."""
        return self.edges_p - self.cut_edges_p

    @property
    def cut_edges_p(self) -> np.ndarray:
        """In-edges of each part that come from another part."""
        return self._each(self.cut * self.num_edges * self.edge_imbalance / self.num_parts)

    @property
    def halo_p(self) -> np.ndarray:
        """Distinct nodes of other parts that each part needs."""
        return self._each(self.halo)

    @property
    def sent_p(self) -> np.ndarray:
        """Rows that each part sends."""
        return self.halo_p

    def _each(self, count: float) -> np.ndarray:
        return np.full(self.num_parts, int(np.ceil(count)), np.int64)


Cut = CutStats | EvenCut


def cut_stats(graph: Graph, owner_n: np.ndarray, num_parts: int) -> CutStats:
    """Count what crosses between parts when node i belongs to part `owner_n[i]`."""
    num_pairs = num_parts * num_parts
    edges_pq = np.zeros(num_pairs, np.int64)
    cut_e = np.empty(graph.num_edges, bool)
    for start in range(0, graph.num_edges, _BLOCK):
        block = slice(start, start + _BLOCK)
        to_e, from_e = owner_n[graph.receivers_e[block]], owner_n[graph.senders_e[block]]
        pair_e = to_e.astype(np.int64) * num_parts + from_e
        edges_pq += np.bincount(pair_e, minlength=num_pairs)
        cut_e[block] = to_e != from_e
    return CutStats(
        np.bincount(owner_n, minlength=num_parts),
        edges_pq.reshape(num_parts, num_parts),
        _halo_pq(graph, owner_n, num_parts, np.flatnonzero(cut_e)),
    )


def _halo_pq(graph: Graph, owner_n: np.ndarray, num_parts: int, cut_e: np.ndarray) -> np.ndarray:
    """Distinct senders by pair of parts; `cut_e` are the edges that cross."""
    to_e = owner_n[graph.receivers_e[cut_e]]
    cut_e = cut_e[stable_order(to_e, num_parts)]
    ends_p = np.cumsum(np.bincount(to_e, minlength=num_parts))
    halo_pq = np.zeros((num_parts, num_parts), np.int64)
    last_n = np.empty(graph.num_nodes, np.int64)
    for part, end in enumerate(ends_p):
        senders_e = graph.senders_e[cut_e[ends_p[part - 1] if part else 0 : end]]
        # Of the edges that share a sender exactly one finds its own position there afterwards, so
        # nothing is sorted and nothing of size N is cleared or searched for each part.
        position_e = np.arange(len(senders_e))
        last_n[senders_e] = position_e
        distinct = senders_e[last_n[senders_e] == position_e]
        halo_pq[part] = np.bincount(owner_n[distinct], minlength=num_parts)
    return halo_pq


def _imbalance(count_p: np.ndarray) -> float:
    total = count_p.sum()
    return float(count_p.max() * len(count_p) / total) if total else 1.0

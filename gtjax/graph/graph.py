"""`Graph`: one large graph on the host, validated once, so that everything after it can trust it.

Arrays are numpy. Nothing here copies features or edges unless their type has to change, and the
arrays a graph holds are read-only views, so a graph can be shared and cached freely.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from gtjax.graph.csr import CSR, build_csr, inverse_order, stable_pair_order
from gtjax.graph.validation import validated_fields

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and directed edges `senders_e -> receivers_e`.

    Validated on construction: a broken rule raises `GraphFormatError`, which names the field, the
    rule and the value. An undirected graph holds each edge in both directions (`symmetrised`).

    labels_n: int [N], -1 where unlabelled; or int [N, tasks] of 0, 1 and -1 for multi-label.
    split_n:  boolean masks by the names "train", "val" and "test"; no node is in two of them.
    """

    senders_e: np.ndarray
    receivers_e: np.ndarray
    x_nf: np.ndarray
    labels_n: np.ndarray
    split_n: Mapping[str, np.ndarray] = field(default_factory=dict)
    edge_x_ef: np.ndarray | None = None
    name: str = "graph"

    def __post_init__(self) -> None:
        for name, value in validated_fields(self).items():
            value = MappingProxyType(value) if isinstance(value, dict) else value
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple:
        # A mapping proxy cannot be pickled, and what comes back has to be checked again anyway.
        values = [getattr(self, each.name) for each in dataclasses.fields(self)]
        return Graph, tuple(dict(v) if isinstance(v, Mapping) else v for v in values)

    def __repr__(self) -> str:
        return (
            f"Graph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} "
            f"{'tasks' if self.is_multilabel else 'classes'})"
        )

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self.x_nf.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of directed edges, E."""
        return self.senders_e.shape[0]

    @property
    def num_features(self) -> int:
        """Width of the node features."""
        return self.x_nf.shape[1]

    @property
    def num_edge_features(self) -> int:
        """Width of the edge features, 0 where there are none."""
        return 0 if self.edge_x_ef is None else self.edge_x_ef.shape[1]

    @property
    def is_multilabel(self) -> bool:
        """Whether each node has several yes/no labels instead of one class."""
        return self.labels_n.ndim == 2

    @cached_property
    def num_classes(self) -> int:
        """Number of classes (largest label + 1), or of tasks if multi-label."""
        if self.is_multilabel:
            return self.labels_n.shape[1]
        return int(self.labels_n.max()) + 1

    @cached_property
    def by_receiver(self) -> CSR:
        """In-edges of every node: `neighbours_e` are senders. Built once."""
        return build_csr(self.receivers_e, self.senders_e, self.num_nodes)

    @cached_property
    def by_sender(self) -> CSR:
        """Out-edges of every node: `neighbours_e` are receivers. Built once."""
        return build_csr(self.senders_e, self.receivers_e, self.num_nodes)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse."""
        return not self._lacks_reverse_e.any()

    @cached_property
    def topology_fingerprint(self) -> str:
        """Hash of the node count and the edges, for caches of what depends on those alone."""
        return _fingerprint([np.asarray(self.num_nodes), self.senders_e, self.receivers_e])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything the graph holds but its name."""
        arrays = [self.x_nf, self.labels_n]
        arrays += [self.split_n[key] for key in sorted(self.split_n)]
        if self.edge_x_ef is not None:
            arrays.append(self.edge_x_ef)
        return _fingerprint(
            arrays, start=self.topology_fingerprint + ",".join(sorted(self.split_n))
        )

    def symmetrised(self) -> Graph:
        """Add the reverse of every edge that lacks it, with the same edge features."""
        if self.is_symmetric:
            return self
        missing_e = np.flatnonzero(self._lacks_reverse_e)
        result = self._with_more_edges(
            self.receivers_e[missing_e],
            self.senders_e[missing_e],
            None if self.edge_x_ef is None else self.edge_x_ef[missing_e],
        )
        result.__dict__["is_symmetric"] = True  # fills the cached property, which costs a sort
        return result

    def reordered(self, order_n: np.ndarray) -> Graph:
        """The same graph with node `order_n[i]` as number i; edges keep their numbers."""
        position_n = inverse_order(order_n).astype(self.senders_e.dtype)
        return dataclasses.replace(
            self,
            senders_e=position_n[self.senders_e],
            receivers_e=position_n[self.receivers_e],
            x_nf=self.x_nf[order_n],
            labels_n=self.labels_n[order_n],
            split_n={name: mask_n[order_n] for name, mask_n in self.split_n.items()},
        )

    def with_self_loops(self) -> Graph:
        """Add the edge from a node to itself where there is none, with zero edge features."""
        has_loop_n = np.zeros(self.num_nodes, bool)
        has_loop_n[self.senders_e[self.senders_e == self.receivers_e]] = True
        nodes = np.flatnonzero(~has_loop_n)
        if not len(nodes):
            return self
        loops_x = None
        if self.edge_x_ef is not None:
            loops_x = np.zeros((len(nodes), self.num_edge_features), self.edge_x_ef.dtype)
        return self._with_more_edges(nodes, nodes, loops_x)

    def without_self_loops(self) -> Graph:
        """Drop every edge from a node to itself."""
        return self._with_edges(np.flatnonzero(self.senders_e != self.receivers_e))

    def without_duplicate_edges(self) -> Graph:
        """Keep the first of the edges that share both ends."""
        order = stable_pair_order(self.senders_e, self.receivers_e, self.num_nodes)
        first_e = np.zeros(self.num_edges, bool)
        first_e[order[_starts_of_runs(self.senders_e[order], self.receivers_e[order])]] = True
        return self._with_edges(np.flatnonzero(first_e))

    def with_splits(self, **masks: np.ndarray) -> Graph:
        """The same graph with other train, val and test masks."""
        return dataclasses.replace(self, split_n=masks)

    @cached_property
    def _lacks_reverse_e(self) -> np.ndarray:
        # Sorted by (lower end, higher end), an edge and its reverse stand in the same run.
        low_e = np.minimum(self.senders_e, self.receivers_e)
        high_e = np.maximum(self.senders_e, self.receivers_e)
        order = stable_pair_order(low_e, high_e, self.num_nodes)
        starts = np.flatnonzero(_starts_of_runs(low_e[order], high_e[order]))
        if not len(starts):
            return np.zeros(0, bool)
        runs = np.diff(starts, append=len(order))
        upward = (self.senders_e < self.receivers_e)[order]
        downward = (self.senders_e > self.receivers_e)[order]
        up_only = ~np.logical_or.reduceat(downward, starts)
        down_only = ~np.logical_or.reduceat(upward, starts)
        lacks_e = np.empty(self.num_edges, bool)
        lacks_e[order] = (upward & np.repeat(up_only, runs)) | (
            downward & np.repeat(down_only, runs)
        )
        return lacks_e

    def _with_edges(self, kept_e: np.ndarray) -> Graph:
        if len(kept_e) == self.num_edges:
            return self
        edge_x = None if self.edge_x_ef is None else self.edge_x_ef[kept_e]
        return dataclasses.replace(
            self,
            senders_e=self.senders_e[kept_e],
            receivers_e=self.receivers_e[kept_e],
            edge_x_ef=edge_x,
        )

    def _with_more_edges(
        self, senders: np.ndarray, receivers: np.ndarray, edge_x: np.ndarray | None
    ) -> Graph:
        kind = self.senders_e.dtype
        if edge_x is not None and self.edge_x_ef is not None:
            edge_x = np.concatenate([self.edge_x_ef, edge_x])
        return dataclasses.replace(
            self,
            senders_e=np.concatenate([self.senders_e, senders.astype(kind)]),
            receivers_e=np.concatenate([self.receivers_e, receivers.astype(kind)]),
            edge_x_ef=edge_x,
        )


def _starts_of_runs(first_e: np.ndarray, second_e: np.ndarray) -> np.ndarray:
    """Whether each position's pair differs from the one before it."""
    starts = np.ones(len(first_e), bool)
    starts[1:] = (first_e[1:] != first_e[:-1]) | (second_e[1:] != second_e[:-1])
    return starts


def _fingerprint(arrays: list[np.ndarray], start: str = "") -> str:
    digest = hashlib.blake2b(start.encode(), digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()

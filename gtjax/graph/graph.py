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
from typing import Any

import numpy as np

from gtjax.graph.csr import CSR, build_csr, inverse_order, stable_pair_order
from gtjax.graph.links import Links
from gtjax.graph.many import ManyGraphs
from gtjax.graph.names import Names
from gtjax.graph.splits import Shares, is_known, random_split_of
from gtjax.graph.validation import validated_fields

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features and labels, and directed edges `senders_e -> receivers_e`.

    Validated on construction: a broken rule raises `GraphFormatError`, which names the field, the
    rule and the value. An undirected graph holds each edge in both directions (`symmetrised`).

    labels_n: int [N], -1 where unlabelled; or int [N, tasks] of 0, 1 and -1 for multi-label; or
              real numbers [N] or [N, targets], NaN where unknown.
    split_n:  boolean masks by the names "train", "val" and "test"; no node is in two of them.
    names:    of nodes, classes and features, where they have any.
    graphs:   where these are many graphs side by side: which is whose, and their labels.
    links:    where edges are to be predicted: the pairs to tell apart; see `hold_out_links`.
    """

    senders_e: np.ndarray
    receivers_e: np.ndarray
    x_nf: np.ndarray
    labels_n: np.ndarray
    split_n: Mapping[str, np.ndarray] = field(default_factory=dict)
    edge_x_ef: np.ndarray | None = None
    name: str = "graph"
    names: Names = field(default_factory=Names)
    graphs: ManyGraphs | None = None
    links: Links | None = None

    def __post_init__(self) -> None:
        for name, value in validated_fields(self).items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple:
        # A mapping proxy cannot be pickled, and what comes back has to be checked again anyway.
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        values["split_n"] = dict(self.split_n)
        if self.graphs is not None:
            values["graphs"] = dataclasses.replace(self.graphs, split_g=dict(self.graphs.split_g))
        return Graph, tuple(values.values())

    def __repr__(self) -> str:
        many = "" if self.graphs is None else f"{self.graphs.count:,} graphs, "
        kind = "tasks" if self.is_multilabel else "targets" if self.is_real else "classes"
        return (
            f"Graph({self.name!r}, {many}{self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} {kind})"
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
    def labels(self) -> np.ndarray:
        """What is known of each node, or of each graph where there are many."""
        return self.labels_n if self.graphs is None else self.graphs.labels_g

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        """Masks over what has `labels`."""
        return self.split_n if self.graphs is None else self.graphs.split_g

    @property
    def is_real(self) -> bool:
        """Whether labels are real numbers."""
        return self.labels.dtype.kind == "f"

    @property
    def is_multilabel(self) -> bool:
        """Whether there are several yes/no labels instead of one class."""
        return self.labels.ndim == 2 and not self.is_real

    @cached_property
    def labelled(self) -> np.ndarray:
        """Where there is a label, at least one of several."""
        return is_known(self.labels)

    @cached_property
    def num_classes(self) -> int:
        """Number of classes (largest label + 1), of tasks if multi-label, or of real targets."""
        if self.labels.ndim == 2:
            return self.labels.shape[1]
        if self.is_real:
            return 1
        return max(int(self.labels.max()) + 1, len(self.names.classes))

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
        """Hash of everything the graph holds but names."""
        arrays = [self.x_nf, self.labels_n]
        arrays += [self.split_n[key] for key in sorted(self.split_n)]
        if self.edge_x_ef is not None:
            arrays.append(self.edge_x_ef)
        if self.graphs is not None:
            masks = self.graphs.split_g
            arrays += [self.graphs.ids_n, self.graphs.labels_g, *(masks[k] for k in sorted(masks))]
        if self.links is not None:
            arrays += [np.asarray(self.links.directed), *self.links.arrays().values()]
        return _fingerprint(
            arrays, start=self.topology_fingerprint + ",".join(sorted(self.split_n))
        )

    def symmetrised(self, *, opposite: bool = False) -> Graph:
        """Add the reverse of every edge that lacks it, with the same edge features.

        opposite: with features of the opposite sign instead, so that a model can tell an edge from
                  its reverse: of a one-hot type, -1 is the type of the way back.
        """
        if self.is_symmetric:
            return self
        missing_e = np.flatnonzero(self._lacks_reverse_e)
        edge_x = None if self.edge_x_ef is None else self.edge_x_ef[missing_e]
        if edge_x is not None and opposite:
            edge_x = np.where(edge_x == 0, 0, -edge_x)  # and no zeros of two kinds
        result = self._with_more_edges(
            self.receivers_e[missing_e], self.senders_e[missing_e], edge_x
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
            names=self.names.reordered(order_n),
            graphs=None if self.graphs is None else self.graphs.reordered(order_n),
            links=None if self.links is None else self.links.changed(lambda _, p: position_n[p]),
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

    def with_splits(self, **masks: Any) -> Graph:
        """The same graph with other train, val and test masks, or lists of numbers.

        Of nodes, or of graphs where there are many.
        """
        if self.graphs is None:
            return dataclasses.replace(self, split_n=masks)
        return dataclasses.replace(self, graphs=dataclasses.replace(self.graphs, split_g=masks))

    def with_random_splits(
        self,
        train: float = 0.6,
        val: float = 0.2,
        test: float = 0.2,
        *,
        seed: int = 0,
        stratified: bool = False,
    ) -> Graph:
        """The same graph with these shares of what has a label, drawn at random by the seed.

        Of nodes, or of graphs where there are many; `stratified` takes the shares of each class.
        """
        shares = Shares(train, val, test)
        return self.with_splits(
            **random_split_of(self.labels, shares, seed, self.name, stratified=stratified)
        )

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

"""Many graphs as one: their nodes stand side by side, and no edge leads from one to another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.graph.class_labels import numbered_labels
from gtjax.graph.names import Names

if TYPE_CHECKING:
    from gtjax.graph.graph import Graph


@dataclass(frozen=True, eq=False)
class ManyGraphs:
    """Which graph every node belongs to, and what is known of each graph."""

    ids_n: np.ndarray
    """Number of the graph of each node, 0 to G-1."""
    labels_g: np.ndarray
    """Of the graphs, as those of nodes: classes, yes/no questions, or real numbers."""
    split_g: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Masks of the graphs for "train", "val" and "test"."""

    @property
    def count(self) -> int:
        """Number of graphs, G."""
        return len(self.labels_g)

    def reordered(self, order_n: np.ndarray) -> ManyGraphs:
        """With node `order_n[i]` as number i."""
        return dataclasses.replace(self, ids_n=self.ids_n[order_n])


def many_graphs(
    graphs: Sequence[Graph],
    labels_g: Any,
    *,
    split_g: Mapping[str, np.ndarray] | None = None,
    name: str = "graphs",
) -> Graph:
    """Many graphs as one, for tasks that ask something of each; labels are those of the graphs.

    Labels are classes as numbers or names, yes/no answers [graphs, questions], or real numbers. All
    graphs have the same features. What is known of their nodes beside that is left behind.
    """
    from gtjax.graph.graph import Graph

    graphs = _listed(graphs, Graph)
    for what in ("num_features", "num_edge_features"):
        if len(found := {getattr(each, what) for each in graphs}) > 1:
            rule = f"all graphs have the same {what.removeprefix('num_').replace('_', ' ')}"
            raise UserError(f"{rule}; found {', '.join(map(str, sorted(found)))}")
    if len({each.names.features for each in graphs}) > 1:
        raise UserError("all graphs have the same features in the same order; their names differ")
    labels_g, classes = numbered_labels("labels_g", labels_g)
    if labels_g.ndim == 0 or len(labels_g) != len(graphs):
        rule = f"one label for each of {len(graphs)} graphs"
        raise GraphFormatError("labels_g", rule, f"shape {list(labels_g.shape)}")
    sizes_g = np.array([each.num_nodes for each in graphs])
    starts_g = np.cumsum(sizes_g) - sizes_g

    def numbers(field_name: str) -> np.ndarray:
        parts = [getattr(g, field_name) + s for g, s in zip(graphs, starts_g, strict=True)]
        return np.concatenate(parts)

    edge_x = [each.edge_x_ef for each in graphs if each.edge_x_ef is not None]
    return Graph(
        numbers("senders_e"),
        numbers("receivers_e"),
        np.concatenate([each.x_nf for each in graphs]),
        np.full(int(sizes_g.sum()), -1, np.int32),
        edge_x_ef=np.concatenate(edge_x) if edge_x else None,
        name=name,
        names=Names(classes=classes, features=graphs[0].names.features),
        graphs=ManyGraphs(
            np.repeat(np.arange(len(graphs)), sizes_g), labels_g, {} if split_g is None else split_g
        ),
    )


def _listed(graphs: Any, kind: type[Graph]) -> list[Graph]:
    found = list(graphs) if isinstance(graphs, Iterable) else None
    if found is not None and not found:
        raise UserError("a set of graphs has at least one graph; found none")
    wrong = [each for each in found or [graphs] if found is None or not isinstance(each, kind)]
    if wrong:
        raise UserError(
            f"a set of graphs is a list of gtjax.Graph; found {type(wrong[0]).__name__}. Make each "
            f"with gtjax.from_edges, from_pyg, from_networkx and the like."
        )
    return found or []


def checked_ids(ids: Any, num_nodes: int, count: int, ends: tuple[np.ndarray, np.ndarray]) -> Any:
    """Numbers of graphs in their canonical type: each has a node, and no edge joins two."""
    ids_n = np.asarray(ids)
    if ids_n.shape != (num_nodes,) or ids_n.dtype.kind not in "iu":
        rule = f"the graph of each node is an integer [{num_nodes}]"
        raise GraphFormatError("graphs.ids_n", rule, f"{ids_n.dtype} {list(ids_n.shape)}")
    for bad in (int(ids_n.min()), int(ids_n.max())):
        if not 0 <= bad < count:
            raise GraphFormatError("graphs.ids_n", f"graphs are numbered 0..{count - 1}", bad)
    sizes_g = np.bincount(ids_n, minlength=count)
    if not sizes_g.all():
        empty = int(np.flatnonzero(sizes_g == 0)[0])
        raise GraphFormatError("graphs.ids_n", "every graph has a node", f"none in graph {empty}")
    crossing = np.flatnonzero(ids_n[ends[0]] != ids_n[ends[1]])
    if len(crossing):
        edge = int(crossing[0])
        found = f"edge {edge}, from node {ends[0][edge]} to node {ends[1][edge]}"
        raise GraphFormatError("graphs.ids_n", "no edge leads from one graph to another", found)
    return ids_n.astype(np.int32, copy=False)

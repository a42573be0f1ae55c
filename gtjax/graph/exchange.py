"""Graphs from and to other libraries: edge lists, scipy.sparse, networkx and jraph.

Whatever comes in is checked by `Graph`. Where the other side has no place for something (labels
and masks in jraph, features in a sparse matrix), it is passed in as an argument, and left behind
on the way out. Features that are not given are absent ([N, 0]); labels not given are -1.

networkx objects cost some hundred bytes an edge and a Python loop: fine for a million edges. The
others are arrays and are shared or copied once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp

from gtjax.graph.errors import GraphFormatError, UserError
from gtjax.graph.graph import Graph
from gtjax.graph.validation import MAX_NODES

if TYPE_CHECKING:
    import jraph

Splits = Mapping[str, np.ndarray] | None


def from_edges(
    edges: np.ndarray | Iterable[tuple[int, int]],
    *,
    num_nodes: int | None = None,
    x_nf: Any = None,
    labels_n: Any = None,
    split_n: Splits = None,
    edge_x_ef: Any = None,
    name: str = "graph",
) -> Graph:
    """Graph of an array [E, 2] or any iterable of (sender, receiver).

    `num_nodes` is needed only where neither features nor labels tell it and the last nodes have
    no edges; otherwise it is the largest number in the edges, plus 1.
    """
    pairs = edges if hasattr(edges, "__array__") else list(edges)
    try:
        array = np.asarray(pairs)
    except (ValueError, TypeError) as error:
        rule = "edges are pairs (sender, receiver)"
        raise GraphFormatError("edges", rule, "rows of unequal length") from error
    if array.size == 0:
        array = np.zeros((0, 2), np.int32)
    if array.ndim != 2 or array.shape[1] != 2:
        raise GraphFormatError("edges", "edges are a table [edges, 2]", f"shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise GraphFormatError("edges", "node numbers are integers", array.dtype)
    for given in (x_nf, labels_n):
        if num_nodes is None and given is not None:
            num_nodes = len(given)
    if num_nodes is None:
        num_nodes = int(array.max(initial=-1)) + 1
    # Copied, since a column of the table would keep the table alive and stride over memory.
    return Graph(
        np.ascontiguousarray(array[:, 0]),
        np.ascontiguousarray(array[:, 1]),
        *_node_fields(num_nodes, x_nf, labels_n, split_n),
        edge_x_ef,
        name,
    )


def from_scipy(
    adjacency: sp.sparray | sp.spmatrix,
    *,
    x_nf: Any = None,
    labels_n: Any = None,
    split_n: Splits = None,
    weights: bool = False,
    name: str = "graph",
) -> Graph:
    """Graph of a sparse matrix: an entry (i, j), also a stored zero, is the edge i -> j.

    With `weights` the entries become the edges' only feature.
    """
    matrix = sp.coo_array(adjacency)
    shape = cast("tuple[int, ...]", matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise GraphFormatError("adjacency", "an adjacency matrix is square", f"shape {shape}")
    senders_e, receivers_e = matrix.coords
    return Graph(
        senders_e,
        receivers_e,
        *_node_fields(shape[0], x_nf, labels_n, split_n),
        matrix.data[:, None] if weights else None,
        name,
    )


def to_scipy(graph: Graph, *, weights: bool = False) -> sp.csr_array:
    """Adjacency matrix with 1, or the edges' only feature, at (sender, receiver).

    Repeated edges add up, as they do in scipy.
    """
    if not weights:
        data = np.ones(graph.num_edges, np.float32)
    elif graph.edge_x_ef is None or graph.num_edge_features != 1:
        raise UserError(
            "to_scipy(weights=True) takes the edges' only feature: this graph has "
            f"{graph.num_edge_features} edge features. Use weights=False."
        )
    else:
        data = graph.edge_x_ef[:, 0].astype(np.float32, copy=False)
    ends = (graph.senders_e, graph.receivers_e)
    return sp.coo_array((data, ends), shape=(graph.num_nodes, graph.num_nodes)).tocsr()


def from_networkx(
    source: Any,
    *,
    features: str | None = None,
    labels: str | None = None,
    edge_features: str | None = None,
    split_n: Splits = None,
    name: str = "graph",
) -> Graph:
    """Graph of a networkx Graph, DiGraph, MultiGraph or MultiDiGraph.

    Nodes are numbered in the order `source` holds them, whatever their names. Undirected edges
    become two edges (a self-loop one). `features`, `labels` and `edge_features` name attributes:
    a number or a list of numbers each; a node without the label attribute is unlabelled.
    """
    number_of: dict[Hashable, int] = {node: n for n, node in enumerate(source.nodes)}
    rows = list(source.edges(data=True))
    pairs = [(number_of[start], number_of[end]) for start, end, _ in rows]
    senders_e, receivers_e = np.asarray(pairs, np.int64).reshape(-1, 2).T
    edge_x_ef = None
    if edge_features is not None:
        edge_x_ef = _attribute_table("edge", edge_features, [(row[:2], row[2]) for row in rows])
    if not source.is_directed():
        twice = np.flatnonzero(senders_e != receivers_e)
        senders_e, receivers_e = (
            np.concatenate([senders_e, receivers_e[twice]]),
            np.concatenate([receivers_e, senders_e[twice]]),
        )
        if edge_x_ef is not None:
            edge_x_ef = np.concatenate([edge_x_ef, edge_x_ef[twice]])
    x_nf = labels_n = None
    if features is not None:
        x_nf = _attribute_table("node", features, list(source.nodes(data=True)))
    if labels is not None:
        labels_n = np.asarray([data.get(labels, -1) for _, data in source.nodes(data=True)])
    fields = _node_fields(len(number_of), x_nf, labels_n, split_n)
    return Graph(senders_e, receivers_e, *fields, edge_x_ef, name)


def to_networkx(graph: Graph) -> Any:
    """networkx MultiDiGraph with all the graph holds, as attributes.

    Nodes have "x" (a list), "label" (absent where unlabelled) and "split"; edges have "x".
    `from_networkx(result, features="x", labels="label", edge_features="x")` leads back.
    """
    result = _import("networkx", "networkx").MultiDiGraph(name=graph.name)
    nodes: list[dict[str, Any]] = [{"x": row} for row in graph.x_nf.tolist()]
    for node, label in enumerate(graph.labels_n.tolist()):
        if label != -1:
            nodes[node]["label"] = label
    for name, mask in graph.split_n.items():
        for node in np.flatnonzero(mask).tolist():
            nodes[node]["split"] = name
    result.add_nodes_from(enumerate(nodes))
    edge_x = [{}] * graph.num_edges
    if graph.edge_x_ef is not None:
        edge_x = [{"x": row} for row in graph.edge_x_ef.tolist()]
    senders, receivers = graph.senders_e.tolist(), graph.receivers_e.tolist()
    result.add_edges_from(zip(senders, receivers, edge_x, strict=True))
    return result


def from_jraph(
    source: jraph.GraphsTuple,
    *,
    labels_n: Any = None,
    split_n: Splits = None,
    name: str = "graph",
) -> Graph:
    """Graph of a `jraph.GraphsTuple` that holds one graph; its globals are left behind.

    Nodes and edges are arrays [N, features] and [E, features], or None.
    """
    counts = np.asarray(source.n_node)
    if counts.shape != (1,):
        rule = "a tuple of one graph (jraph.unbatch takes several apart)"
        raise GraphFormatError("n_node", rule, f"{counts.size} graphs")
    num_nodes, num_edges = int(counts[0]), int(np.asarray(source.n_edge).sum())
    senders = np.zeros(0, np.int32) if source.senders is None else np.asarray(source.senders)
    receivers = np.zeros(0, np.int32) if source.receivers is None else np.asarray(source.receivers)
    x_nf = None if source.nodes is None else _table("nodes", source.nodes)
    for field, rows, expected in (
        ("senders", senders, num_edges),
        ("nodes", x_nf, num_nodes),
    ):
        if rows is not None and len(rows) != expected:
            count = {"senders": "n_edge", "nodes": "n_node"}[field]
            raise GraphFormatError(field, f"{count} says {expected}", len(rows))
    edge_x_ef = None if source.edges is None else _table("edges", source.edges)
    fields = _node_fields(num_nodes, x_nf, labels_n, split_n)
    return Graph(senders, receivers, *fields, edge_x_ef, name)


def to_jraph(graph: Graph) -> jraph.GraphsTuple:
    """`jraph.GraphsTuple` of numpy arrays; labels and masks have no place there."""
    return import_module("jraph").GraphsTuple(
        nodes=graph.x_nf,
        edges=graph.edge_x_ef,
        senders=graph.senders_e,
        receivers=graph.receivers_e,
        globals=None,
        n_node=np.array([graph.num_nodes], np.int32),
        n_edge=np.array([graph.num_edges], np.int32),
    )


def _node_fields(num_nodes: int, x_nf: Any, labels_n: Any, split_n: Splits) -> tuple[Any, Any, Any]:
    """Features, labels and masks, with those that are not given filled in."""
    if not 1 <= num_nodes <= MAX_NODES:  # before arrays of that size are made
        raise GraphFormatError("num_nodes", f"a graph has 1 to {MAX_NODES} nodes", num_nodes)
    if x_nf is None:
        x_nf = np.zeros((num_nodes, 0), np.float32)
    elif len(x_nf) != num_nodes:
        raise GraphFormatError("x_nf", f"one row for each of {num_nodes} nodes", len(x_nf))
    if labels_n is None:
        labels_n = np.full(num_nodes, -1, np.int32)
    return x_nf, labels_n, {} if split_n is None else split_n


def _attribute_table(kind: str, attribute: str, rows: list[tuple[Any, Mapping]]) -> np.ndarray:
    """Values of an attribute as a table, one row each; a missing one is named."""
    values = []
    for key, data in rows:
        if attribute not in data:
            rule = f"every {kind} has the attribute"
            raise GraphFormatError(attribute, rule, f"none on {kind} {key!r}")
        values.append(data[attribute])
    return _table(attribute, values)


def _table(field: str, values: Any) -> np.ndarray:
    try:
        table = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise GraphFormatError(field, "rows of equal length", "unequal ones") from error
    if table.dtype.kind == "O":
        raise GraphFormatError(field, "an array of numbers", type(values).__name__)
    if table.size == 0 and table.ndim == 1:
        return np.zeros((0, 0), np.float32)
    return table[:, None] if table.ndim == 1 else table


def _import(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f'{module} is not installed, and this needs it. Run: pip install "gtjax[{extra}]"'
        ) from error

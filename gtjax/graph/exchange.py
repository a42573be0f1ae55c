"""Graphs from and to other libraries: edge lists, scipy.sparse, networkx and jraph.

Whatever comes in is checked by `Graph`. Where the other side has no place for something (labels
and masks in jraph, features in a sparse matrix), it is passed in as an argument, and left behind
on the way out. Features that are not given are absent ([N, 0]); labels not given are -1.

networkx objects cost some hundred bytes an edge and a Python loop: fine for a million edges. The
others are arrays and are shared or copied once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.graph.arrays import host_array
from gtjax.graph.class_labels import numbered_labels
from gtjax.graph.graph import Graph
from gtjax.graph.names import Names
from gtjax.graph.splits import is_known
from gtjax.graph.validation import MAX_NODES

if TYPE_CHECKING:
    import jraph

Splits = Mapping[str, Any] | None


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
    """Graph of an array [E, 2] or [2, E], or any iterable of (sender, receiver).

    Arrays may be numpy's, jax's or torch's; one of shape [2, 2] holds two pairs, a row each.
    `labels_n` are classes as numbers (-1: none) or names (None: none), yes/no answers [N, tasks],
    or real numbers (NaN: unknown). `split_n` has masks or lists of node numbers, by the names
    "train", "val" and "test". `num_nodes` is needed only where neither features nor labels tell it
    and the last nodes have no edges; otherwise it is the largest number in the edges, plus 1.
    """
    senders_e, receivers_e = _ends(edges)
    for given in (x_nf, labels_n):
        if num_nodes is None and given is not None:
            num_nodes = len(_sized("x_nf" if given is x_nf else "labels_n", given))
    if num_nodes is None:
        largest = (int(ends.max(initial=-1)) for ends in (senders_e, receivers_e))
        num_nodes = max(largest) + 1
    fields, names = _node_fields(num_nodes, x_nf, labels_n, split_n)
    return Graph(senders_e, receivers_e, *fields, edge_x_ef, name, names)


def _ends(edges: Any) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, copied: a column of the table would keep it, and stride over it."""
    if not (hasattr(edges, "__array__") or isinstance(edges, Iterable)):
        rule = "edges are an array [edges, 2], or pairs (sender, receiver)"
        raise GraphFormatError("edges", rule, type(edges).__name__)
    try:
        array = host_array("edges", edges if hasattr(edges, "__array__") else list(edges))
    except GraphFormatError as error:
        rule = "edges are pairs (sender, receiver)"
        raise GraphFormatError("edges", rule, "rows of unequal length") from error
    if array.size == 0:
        array = np.zeros((0, 2), np.int32)
    if array.ndim == 2 and array.shape[0] == 2 and array.shape[1] != 2:
        array = array.T
    if array.ndim != 2 or array.shape[1] != 2:
        rule = "edges are a table [edges, 2] or [2, edges]"
        raise GraphFormatError("edges", rule, f"shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise GraphFormatError("edges", "node numbers are integers", array.dtype)
    return np.ascontiguousarray(array[:, 0]), np.ascontiguousarray(array[:, 1])


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
    if not (sp.issparse(adjacency) or isinstance(adjacency, np.ndarray)):
        rule = "a sparse matrix [nodes, nodes]; edges go into gtjax.from_edges"
        raise GraphFormatError("adjacency", rule, type(adjacency).__name__)
    matrix = sp.coo_array(adjacency)
    shape = cast("tuple[int, ...]", matrix.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise GraphFormatError("adjacency", "an adjacency matrix is square", f"shape {shape}")
    senders_e, receivers_e = matrix.coords
    fields, names = _node_fields(shape[0], x_nf, labels_n, split_n)
    edge_x_ef = matrix.data[:, None] if weights else None
    return Graph(senders_e, receivers_e, *fields, edge_x_ef, name, names)


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

    Nodes are numbered in the order `source` holds them; if that is not 0, 1, 2 and so on they keep
    what they are called in `names`, as text. Undirected edges become two edges (a self-loop one).
    `features`, `labels` and `edge_features` name attributes: a number or a list of numbers each, or
    for labels the name of a class; a node without the label attribute is unlabelled.
    """
    if not (hasattr(source, "nodes") and hasattr(source, "is_directed")):
        raise UserError(f"from_networkx takes a networkx graph; found {type(source).__name__}")
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
        labels_n = _attribute_labels(labels, [data for _, data in source.nodes(data=True)])
    fields, names = _node_fields(len(number_of), x_nf, labels_n, split_n)
    if list(number_of) != list(range(len(number_of))):
        names = dataclasses.replace(names, nodes=np.array([str(node) for node in number_of]))
    return Graph(senders_e, receivers_e, *fields, edge_x_ef, name, names)


def to_networkx(graph: Graph) -> Any:
    """networkx MultiDiGraph with all the graph holds, as attributes.

    Nodes have "x" (a list), "label" (absent where unlabelled) and "split"; edges have "x".
    `from_networkx(result, features="x", labels="label", edge_features="x")` leads back.
    """
    result = _import("networkx", "networkx").MultiDiGraph(name=graph.name)
    nodes: list[dict[str, Any]] = [{"x": row} for row in graph.x_nf.tolist()]
    labels = graph.labels_n.tolist()
    for node in np.flatnonzero(is_known(graph.labels_n)).tolist():
        nodes[node]["label"] = labels[node]
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
    if not all(hasattr(source, field) for field in ("n_node", "senders", "nodes")):
        raise UserError(f"from_jraph takes a jraph.GraphsTuple; found {type(source).__name__}")
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
    fields, names = _node_fields(num_nodes, x_nf, labels_n, split_n)
    return Graph(senders, receivers, *fields, edge_x_ef, name, names)


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


def _node_fields(
    num_nodes: Any, x_nf: Any, labels_n: Any, split_n: Any
) -> tuple[tuple[Any, Any, Any], Names]:
    """Features, labels and masks, with those that are not given filled in; names of classes."""
    if not isinstance(num_nodes, int | np.integer) or not 1 <= num_nodes <= MAX_NODES:
        # Before arrays of that size are made.
        raise GraphFormatError("num_nodes", f"a graph has 1 to {MAX_NODES} nodes", num_nodes)
    if x_nf is None:
        x_nf = np.zeros((num_nodes, 0), np.float32)
    else:
        x_nf = _sized("x_nf", x_nf)
        if len(x_nf) != num_nodes:
            raise GraphFormatError("x_nf", f"one row for each of {num_nodes} nodes", len(x_nf))
    if labels_n is None:
        labels_n, classes = np.full(num_nodes, -1, np.int32), ()
    else:
        labels_n, classes = numbered_labels("labels_n", labels_n)
    return (x_nf, labels_n, {} if split_n is None else split_n), Names(classes=classes)


def _sized(field: str, values: Any) -> np.ndarray:
    array = host_array(field, values)
    if array.ndim == 0:
        raise GraphFormatError(field, "one row a node", type(values).__name__)
    return array


def _attribute_labels(attribute: str, rows: list[Mapping]) -> Any:
    """Values of the attribute; where it is missing, what stands for that among values like it."""
    found = [data[attribute] for data in rows if attribute in data]
    if not found:
        return np.full(len(rows), -1, np.int32)
    kind = host_array(attribute, found)
    missing: Any = {"f": np.nan, "U": None, "O": None}.get(kind.dtype.kind, -1)
    if kind.ndim == 2:
        missing = [missing] * kind.shape[1]
    return [data.get(attribute, missing) for data in rows]


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
        table = host_array(field, values)
    except GraphFormatError as error:
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

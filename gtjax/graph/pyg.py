"""Graphs from and to PyTorch Geometric: `Data`, lists and data sets of it, and batches.

Reading looks at attributes alone, so torch is not imported by us. Files of PyG (`.pt`) are pickles
and are not read: load them where they were made, and convert what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.graph.arrays import host_array
from gtjax.graph.foreign import features_of, labels_of, masks_of
from gtjax.graph.graph import Graph
from gtjax.graph.many import ManyGraphs, many_graphs

_SETS = {"train": "train", "valid": "val", "val": "val", "test": "test"}


def from_pyg(data: Any, *, split: int = 0, name: str | None = None) -> Graph:
    """Graph of a `torch_geometric.data.Data`: x, edge_index, edge_attr, y and masks.

    Integer y are classes, real y are targets, and y [N, tasks] of 0 and 1 are yes/no answers. Of
    masks [N, splits] it is `split` that counts. A list of Data, a data set or a `Batch` is taken as
    many graphs (`gtjax.many_graphs`) whose labels are the y; a `Batch` with a y for every node, and
    a data set of one graph, as one. The split of an OGB data set comes along.
    """
    _refuse_other_kinds(data)
    if _is_data(data):
        return _graph(data, split, name or "graph")
    items = [data[i] for i in range(len(data))]
    if not items:
        raise UserError("a set of graphs has at least one graph; found none")
    for each in items:
        _refuse_other_kinds(each)
        if not _is_data(each):
            raise _no_data(each)
    name = name or _name_of(data)
    masks = _official_split(data)
    if len(items) == 1 and not isinstance(data, list | tuple):
        graph = _graph(items[0], split, name)
        return graph.with_splits(**masks) if masks else graph
    labels_g = [_label(number, each) for number, each in enumerate(items)]
    graphs = [_graph(each, 0, name, labelled=False) for each in items]
    labels = labels_of("y", _stacked(labels_g))
    return many_graphs(graphs, labels, split_g=masks, name=name)


def to_pyg(graph: Graph) -> Any:
    """`torch_geometric.data.Data` with x, edge_index, edge_attr, y and masks.

    Many graphs become a list of Data, whose y are their labels; their masks and all names are left
    behind.
    """
    if not isinstance(graph, Graph):
        raise UserError(f"to_pyg takes a gtjax.Graph; found {type(graph).__name__}")
    try:
        torch, data = import_module("torch"), import_module("torch_geometric.data").Data
    except ImportError as error:
        raise UserError(
            "torch_geometric is not installed, and this needs it. "
            "Run: pip install torch torch_geometric"
        ) from error

    def one(nodes: np.ndarray, edges: np.ndarray, start: int, y: np.ndarray, **more: Any) -> Any:
        ends = np.stack([graph.senders_e[edges], graph.receivers_e[edges]]).astype(np.int64) - start
        edge_x = graph.edge_x_ef
        return data(
            x=torch.tensor(graph.x_nf[nodes]),
            edge_index=torch.tensor(ends),
            edge_attr=None if edge_x is None else torch.tensor(edge_x[edges]),
            y=torch.tensor(y if y.dtype.kind == "f" else y.astype(np.int64)),
            num_nodes=len(nodes),
            **more,
        )

    if graph.graphs is None:
        masks = {f"{name}_mask": torch.tensor(mask) for name, mask in graph.split_n.items()}
        every = np.arange(graph.num_nodes), np.arange(graph.num_edges)
        return one(*every, 0, graph.labels_n, **masks)
    ids_n, labels_g = graph.graphs.ids_n, graph.graphs.labels_g
    if (np.diff(ids_n) < 0).any():  # so that the nodes of a graph stand together
        return to_pyg(graph.reordered(np.argsort(ids_n, kind="stable")))
    starts = np.searchsorted(ids_n, np.arange(len(labels_g) + 1))
    id_e = ids_n[graph.senders_e]
    order_e = np.argsort(id_e, kind="stable")
    edge_starts = np.searchsorted(id_e[order_e], np.arange(len(labels_g) + 1))
    return [
        one(
            np.arange(starts[g], starts[g + 1]),
            order_e[edge_starts[g] : edge_starts[g + 1]],
            int(starts[g]),
            labels_g[g : g + 1],
        )
        for g in range(len(labels_g))
    ]


def _graph(data: Any, split: int, name: str, *, labelled: bool = True) -> Graph:
    edge_index = host_array("edge_index", data.edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        rule = "edge_index is [2, edges]"
        raise GraphFormatError("edge_index", rule, f"shape {list(edge_index.shape)}")
    x = getattr(data, "x", None)
    count = getattr(data, "num_nodes", None) if x is None else len(x)
    if count is None:
        raise GraphFormatError("num_nodes", "data with x, or with num_nodes", "neither")
    count = int(count)
    x_nf = features_of("x", x, count)
    edge_x = getattr(data, "edge_attr", None)
    edge_x = getattr(data, "edge_weight", None) if edge_x is None else edge_x
    labels, graphs = labels_of("y", getattr(data, "y", None)) if labelled else None, None
    ids = getattr(data, "batch", None) if labelled else None
    if ids is not None and labels is not None:
        ids_n = host_array("batch", ids)
        if len(np.atleast_1d(labels)) != count:
            graphs, labels = ManyGraphs(ids_n, labels), None
    no_labels = labels is None
    return Graph(
        edge_index[0].astype(np.int64, copy=False),
        edge_index[1].astype(np.int64, copy=False),
        np.zeros((count, 0), np.float32) if x_nf is None else x_nf,
        np.full(count, -1, np.int32) if labels is None else labels,
        {} if no_labels else masks_of(lambda key: getattr(data, key, None), split),
        features_of("edge_attr", edge_x, edge_index.shape[1]),
        name,
        graphs=graphs,
    )


def _label(number: int, data: Any) -> np.ndarray:
    """The label of a graph of many, as a row."""
    y = getattr(data, "y", None)
    if y is None:
        raise GraphFormatError("y", "every graph of a list has a label y", f"none in {number}")
    row = host_array("y", y)
    if row.ndim > 2 or (row.ndim and len(row) != 1):
        rule = (
            "the label of a graph of a list is one number or [1, tasks]; if nodes have labels, "
            "give torch_geometric.data.Batch.from_data_list(graphs)"
        )
        raise GraphFormatError("y", rule, f"shape {list(row.shape)} in graph {number}")
    return row.reshape(1, -1)


def _stacked(rows: list[np.ndarray]) -> np.ndarray:
    widths = {row.shape[1] for row in rows}
    if len(widths) > 1:
        raise GraphFormatError("y", "all graphs have as many labels", sorted(widths))
    return np.concatenate(rows)


def _official_split(data: Any) -> dict[str, np.ndarray]:
    """What a data set of OGB calls its split: numbers of nodes or graphs."""
    get = getattr(data, "get_idx_split", None)
    found = get() if callable(get) else {}
    if not isinstance(found, Mapping):
        return {}
    return {_SETS[key]: host_array(key, found[key]) for key in found if key in _SETS}


def _is_data(data: Any) -> bool:
    return getattr(data, "edge_index", None) is not None


def _name_of(data: Any) -> str:
    name = getattr(data, "name", None)
    return name if isinstance(name, str) and name else "graph"


def _refuse_other_kinds(data: Any) -> None:
    if getattr(data, "edge_types", None) is not None and hasattr(data, "node_types"):
        raise UserError(
            "a graph has one type of node and of edge; found HeteroData. Take all of it with "
            "from_pyg(data.to_homogeneous()), or one relation with from_edges(edge_index, ...)."
        )
    if not _is_data(data):
        if getattr(data, "adj_t", None) is not None:
            raise UserError(
                "from_pyg reads edge_index; found adj_t alone. Leave ToSparseTensor out."
            )
        if isinstance(data, str | Mapping) or not (
            hasattr(data, "__len__") and hasattr(data, "__getitem__")
        ):
            raise _no_data(data)


def _no_data(data: Any) -> UserError:
    return UserError(
        "from_pyg takes a torch_geometric Data (which has edge_index), a list of them or a data "
        f"set; found {type(data).__name__}. Arrays go into gtjax.from_edges."
    )

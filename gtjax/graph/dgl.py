"""Graphs from DGL; it looks at attributes alone, so neither DGL nor torch is imported by us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph.arrays import host_array
from gtjax.graph.foreign import features_of, labels_of, masks_of
from gtjax.graph.graph import Graph
from gtjax.graph.many import many_graphs


def from_dgl(
    source: Any,
    *,
    features: str = "feat",
    labels: str = "label",
    edge_features: str = "feat",
    split: int = 0,
    name: str | None = None,
) -> Graph:
    """Graph of a `DGLGraph`: `ndata` has features, labels and masks, `edata` edge features.

    Names of the columns are DGL's own unless given; what is not there is left out. Of masks
    [N, splits] it is `split` that counts. A list, or a data set, of (graph, label) is taken as many
    graphs (`gtjax.many_graphs`); a data set of one graph as that one.
    """
    name = name or getattr(source, "name", None) or "graph"
    name = name if isinstance(name, str) else "graph"
    if _is_graph(source):
        return _graph(source, features, labels, edge_features, split, name)
    if isinstance(source, str | Mapping) or not (
        hasattr(source, "__len__") and hasattr(source, "__getitem__")
    ):
        raise _no_graph(source)
    items = [source[i] for i in range(len(source))]
    if len(items) == 1 and _is_graph(items[0]):
        return _graph(items[0], features, labels, edge_features, split, name)
    for item in items:
        if not (isinstance(item, tuple | list) and len(item) == 2 and _is_graph(item[0])):
            raise _no_graph(item)
    graphs = [_graph(item[0], features, None, edge_features, 0, name) for item in items]
    labels_g = np.array([np.atleast_1d(host_array("label", item[1])) for item in items])
    return many_graphs(graphs, labels_of("label", labels_g), name=name)


def _graph(
    source: Any, features: str, labels: str | None, edge_features: str, split: int, name: str
) -> Graph:
    if not getattr(source, "is_homogeneous", True):
        raise UserError(
            "a graph has one type of node and of edge; found a heterograph of DGL. Take all of it "
            "with from_dgl(dgl.to_homogeneous(g)), or one relation with from_dgl(g[relation])."
        )
    senders_e, receivers_e = (host_array("edges", ends) for ends in source.edges()[:2])
    count = int(source.num_nodes())
    ndata, edata = source.ndata, source.edata
    x_nf = features_of(features, _get(ndata, features), count)
    known = labels_of(labels, _get(ndata, labels)) if labels is not None else None
    return Graph(
        senders_e,
        receivers_e,
        np.zeros((count, 0), np.float32) if x_nf is None else x_nf,
        np.full(count, -1, np.int32) if known is None else known,
        {} if known is None else masks_of(lambda key: _get(ndata, key), split),
        features_of(edge_features, _get(edata, edge_features), len(senders_e)),
        name,
    )


def _get(frame: Any, key: str) -> Any:
    return frame[key] if key in frame else None  # noqa: SIM401 - a frame of DGL has no get


def _is_graph(source: Any) -> bool:
    return all(hasattr(source, field) for field in ("ndata", "edata", "edges", "num_nodes"))


def _no_graph(source: Any) -> UserError:
    return UserError(
        "from_dgl takes a DGLGraph, or a list or data set of (DGLGraph, label); found "
        f"{type(source).__name__}. Arrays go into gtjax.from_edges."
    )

"""What a graph looks like in figures, for `gtjax datasets` and the HTML report.

Costs one sort of the edges and one search for components: seconds for ten million edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from gtjax.graph.csr import stable_pair_order
from gtjax.graph.graph import Graph
from gtjax.graph.required import required_graph
from gtjax.graph.stored import StoredGraph


def statistics(graph: Graph | StoredGraph) -> dict[str, Any]:
    """Counts, degrees, components, homophily and splits of a graph, ready for JSON.

    Degrees are in-degrees. `degree_histogram` is a list of (lower bound, nodes): degree 0, 1, 2-3,
    4-7, and so on up to the largest. `edge_homophily` is the share of edges, among those with two
    labelled ends, whose ends share their label; None where there are no such edges or the graph is
    multi-label, and of many graphs or real targets. `class_counts` counts the nodes (or graphs) by
    class, or by task those that answer yes. Of a stored graph there is what its nodes say: 16 bytes
    of memory a node.
    """
    if isinstance(graph, StoredGraph):
        return _of_nodes(graph, graph.by_receiver.degrees_n)
    graph = required_graph(graph, "statistics")
    degrees_n = np.bincount(graph.receivers_e, minlength=graph.num_nodes)
    touched_n = degrees_n + np.bincount(graph.senders_e, minlength=graph.num_nodes)
    components = _component_sizes(graph)
    return {
        **_of_nodes(graph, degrees_n),
        "self_loops": int(np.count_nonzero(graph.senders_e == graph.receivers_e)),
        "multi_edges": _repeated_edges(graph),
        "isolated_nodes": int(np.count_nonzero(touched_n == 0)),
        "components": len(components),
        "largest_component": int(components.max()),
        "edge_homophily": _edge_homophily(graph),
        **({} if graph.graphs is None else {"graphs": graph.graphs.count}),
    }


def _of_nodes(graph: Graph | StoredGraph, degrees_n: np.ndarray) -> dict[str, Any]:
    """What is known without a look at the edges."""
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "edge_features": graph.num_edge_features,
        "classes": graph.num_classes,
        "multilabel": graph.is_multilabel,
        "symmetric": graph.is_symmetric,
        "degree": {
            "min": int(degrees_n.min()),
            "mean": graph.num_edges / graph.num_nodes,
            "median": float(np.median(degrees_n)),
            "max": int(degrees_n.max()),
        },
        "degree_histogram": _log2_histogram(degrees_n),
        "labelled_nodes": 0 if graph.graphs else int(np.count_nonzero(graph.labelled)),
        "class_counts": _class_counts(graph),
        "splits": {name: int(np.count_nonzero(mask)) for name, mask in graph.splits.items()},
    }


def _component_sizes(graph: Graph) -> np.ndarray:
    """Number of nodes in each component, edges taken in both directions."""
    entries = (np.ones(graph.num_edges, np.int8), (graph.senders_e, graph.receivers_e))
    matrix = sp.coo_array(entries, shape=(graph.num_nodes, graph.num_nodes)).tocsr()
    _, component_n = sp.csgraph.connected_components(matrix, directed=True, connection="weak")
    return np.bincount(component_n)


def _repeated_edges(graph: Graph) -> int:
    """Edges beyond the first between the same two ends in the same direction."""
    order = stable_pair_order(graph.senders_e, graph.receivers_e, graph.num_nodes)
    senders, receivers = graph.senders_e[order], graph.receivers_e[order]
    same = (senders[1:] == senders[:-1]) & (receivers[1:] == receivers[:-1])
    return int(np.count_nonzero(same))


def _edge_homophily(graph: Graph) -> float | None:
    if graph.is_multilabel or graph.is_real or graph.graphs is not None:
        return None
    sender_label_e = graph.labels_n[graph.senders_e]
    receiver_label_e = graph.labels_n[graph.receivers_e]
    labelled_e = (sender_label_e >= 0) & (receiver_label_e >= 0)
    total = np.count_nonzero(labelled_e)
    if not total:
        return None
    return float(np.count_nonzero(labelled_e & (sender_label_e == receiver_label_e)) / total)


def _class_counts(graph: Graph | StoredGraph) -> list[int]:
    if graph.is_real:
        return []
    if graph.is_multilabel:
        return np.count_nonzero(graph.labels == 1, axis=0).tolist()
    labels = graph.labels[graph.labels >= 0]
    return np.bincount(labels, minlength=graph.num_classes).tolist()


def _log2_histogram(degrees_n: np.ndarray) -> list[tuple[int, int]]:
    # frexp's exponent of 0, 1, 2-3, 4-7, ... is 0, 1, 2, 3, ...: the number of binary digits.
    digits_n = np.frexp(degrees_n.astype(np.float64))[1]
    counts = np.bincount(digits_n).tolist()
    return [(1 << digits >> 1, count) for digits, count in enumerate(counts)]

"""What people pass where a graph belongs, and what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.graph.graph import Graph
from gtjax.graph.stored import StoredGraph

# By the top-level module of the type.
_CONVERTERS = {
    "dgl": "gtjax.from_dgl(it)",
    "jax": "gtjax.from_edges(it, x_nf=..., labels_n=...)",
    "jaxlib": "gtjax.from_edges(it, x_nf=..., labels_n=...)",
    "jraph": "gtjax.from_jraph(it, labels_n=...)",
    "networkx": 'gtjax.from_networkx(it, features="x", labels="label")',
    "numpy": "gtjax.from_edges(it, x_nf=..., labels_n=...)",
    "pandas": "gtjax.from_pandas(edges, nodes)",
    "scipy": "gtjax.from_scipy(it, x_nf=..., labels_n=...)",
    "torch": "gtjax.from_edges(it, x_nf=..., labels_n=...)",
    "torch_geometric": "gtjax.from_pyg(it)",
}


def required_graph(graph: Any, function: str) -> Graph:
    """The graph that was given; anything else is refused with what makes a graph of it.

    A stored graph is read into memory, or refused if it does not fit.
    """
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, StoredGraph):
        graph.check_memory(function)
        return graph.in_memory()
    kind = type(graph)
    advice = _CONVERTERS.get(kind.__module__.partition(".")[0])
    if isinstance(graph, str | Path):
        advice = f"gtjax.load({str(graph)!r})"
    elif isinstance(graph, list | tuple | set) and any(isinstance(each, Graph) for each in graph):
        advice = "gtjax.many_graphs(it, labels_g)"
    elif advice is None:
        advice = "gtjax.load(name_or_path), or gtjax.from_edges(edges, x_nf=..., labels_n=...)"
    raise UserError(f"{function} takes a gtjax.Graph; found {kind.__name__}. Write {advice}.")

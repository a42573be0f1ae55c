"""The graph on the host: `Graph`, its rules, exchange with other libraries, generators, figures."""

from gtjax.graph.csr import CSR, edge_ids
from gtjax.graph.dgl import from_dgl
from gtjax.graph.exchange import (
    from_edges,
    from_jraph,
    from_networkx,
    from_scipy,
    to_jraph,
    to_networkx,
    to_scipy,
)
from gtjax.graph.generators import GENERATORS
from gtjax.graph.graph import SPLITS, Graph
from gtjax.graph.links import Links, hold_out_links
from gtjax.graph.locality import locality_order, log_gap
from gtjax.graph.many import ManyGraphs, many_graphs
from gtjax.graph.names import Names
from gtjax.graph.pyg import from_pyg, to_pyg
from gtjax.graph.required import required_graph
from gtjax.graph.rows import Table
from gtjax.graph.statistics import statistics
from gtjax.graph.stored import StoredGraph

__all__ = [
    "CSR",
    "GENERATORS",
    "SPLITS",
    "Graph",
    "Links",
    "ManyGraphs",
    "Names",
    "StoredGraph",
    "Table",
    "edge_ids",
    "from_dgl",
    "from_edges",
    "from_jraph",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "hold_out_links",
    "locality_order",
    "log_gap",
    "many_graphs",
    "required_graph",
    "statistics",
    "to_jraph",
    "to_networkx",
    "to_pyg",
    "to_scipy",
]

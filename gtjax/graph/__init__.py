"""The graph on the host: `Graph`, its rules, exchange with other libraries, generators, figures."""

from gtjax.graph.csr import CSR
from gtjax.graph.errors import GraphFormatError, UserError
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
from gtjax.graph.locality import locality_order, log_gap
from gtjax.graph.statistics import statistics

__all__ = [
    "CSR",
    "GENERATORS",
    "SPLITS",
    "Graph",
    "GraphFormatError",
    "UserError",
    "from_edges",
    "from_jraph",
    "from_networkx",
    "from_scipy",
    "locality_order",
    "log_gap",
    "statistics",
    "to_jraph",
    "to_networkx",
    "to_scipy",
]

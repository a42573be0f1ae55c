"""The graph on the host: `Graph`, its rules, its exchange with other libraries, generators."""

from gtjax.graph.csr import CSR
from gtjax.graph.errors import GraphFormatError, UserError
from gtjax.graph.generators import GENERATORS
from gtjax.graph.graph import SPLITS, Graph

__all__ = ["CSR", "GENERATORS", "SPLITS", "Graph", "GraphFormatError", "UserError"]

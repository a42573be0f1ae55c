"""Edges in both orders, and the forms of them that back ends work on: shared by all ops."""

from pallas_kernels.edges.dropout import Dropout, keep_scale
from pallas_kernels.edges.edges import EDGE_FORMS, EdgeForm, Edges, build_edges
from pallas_kernels.edges.limits import LimitError
from pallas_kernels.edges.stacking import EdgeList, TooLargeError, build_stacked_edges

__all__ = [
    "EDGE_FORMS",
    "Dropout",
    "EdgeForm",
    "EdgeList",
    "Edges",
    "LimitError",
    "TooLargeError",
    "build_edges",
    "build_stacked_edges",
    "keep_scale",
]

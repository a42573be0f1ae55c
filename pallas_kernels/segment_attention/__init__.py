"""Multi-head attention of nodes over their in-edges: one op, several back ends."""

from pallas_kernels.segment_attention.api import (
    BACKENDS,
    Backend,
    EdgeSet,
    backend_name,
    choose_backend,
    segment_attention,
    segment_attention_over,
)
from pallas_kernels.segment_attention.propagation import propagate
from pallas_kernels.segment_attention.stacking import EdgeList, TooLargeError, build_stacked_edges
from pallas_kernels.segment_attention.types import (
    Dropout,
    Edges,
    Partial,
    build_edges,
    finish,
    keep_scale,
    log_sum_exp,
    merge,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "Dropout",
    "EdgeList",
    "EdgeSet",
    "Edges",
    "Partial",
    "TooLargeError",
    "backend_name",
    "build_edges",
    "build_stacked_edges",
    "choose_backend",
    "finish",
    "keep_scale",
    "log_sum_exp",
    "merge",
    "propagate",
    "segment_attention",
    "segment_attention_over",
]

"""Ops along the edges of a graph, fused and recomputing: arrays in, arrays out.

One folder an op, one file a back end; `edges/` lays edges out, `passes/` is what kernels share, and
`driver.py` differentiates any of them. Knows jax, and nothing of gtjax.
"""

from pallas_kernels.additive import gat, gatv2, segment_gat, segment_gatv2
from pallas_kernels.custom import custom, segment_custom
from pallas_kernels.dot_product import DOT_PRODUCT, segment_attention
from pallas_kernels.edges import Dropout, Edges, build_edges, build_stacked_edges
from pallas_kernels.extreme import LARGEST, SMALLEST, segment_extreme
from pallas_kernels.op import Kernel, Op
from pallas_kernels.weighted_sum import (
    WEIGHTED_MEAN,
    WEIGHTED_SUM,
    segment_sum,
    sparse_product,
)

# Ops with kernels of their own, by name.
OPS: dict[str, Op] = {
    op.name: op
    for op in (DOT_PRODUCT, gat(), gatv2(), WEIGHTED_SUM, WEIGHTED_MEAN, LARGEST, SMALLEST)
}

__all__ = [
    "DOT_PRODUCT",
    "LARGEST",
    "OPS",
    "SMALLEST",
    "WEIGHTED_MEAN",
    "WEIGHTED_SUM",
    "Dropout",
    "Edges",
    "Kernel",
    "Op",
    "build_edges",
    "build_stacked_edges",
    "custom",
    "gat",
    "gatv2",
    "segment_attention",
    "segment_custom",
    "segment_extreme",
    "segment_gat",
    "segment_gatv2",
    "segment_sum",
    "sparse_product",
]

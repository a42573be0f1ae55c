"""Dot-product attention of nodes over their in-edges: one op, several back ends."""

from pallas_kernels.dot_product.op import DOT_PRODUCT, segment_attention

__all__ = ["DOT_PRODUCT", "segment_attention"]

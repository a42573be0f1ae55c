"""Any jax function of an edge, reduced over each receiver's edges."""

from pallas_kernels.custom.op import custom, segment_custom

__all__ = ["custom", "segment_custom"]

"""Weighted sums and means of neighbours' rows."""

from pallas_kernels.weighted_sum.op import WEIGHTED_MEAN, WEIGHTED_SUM, segment_sum
from pallas_kernels.weighted_sum.product import sparse_product

__all__ = ["WEIGHTED_MEAN", "WEIGHTED_SUM", "segment_sum", "sparse_product"]

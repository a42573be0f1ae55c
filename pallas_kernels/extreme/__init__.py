"""The largest or smallest of neighbours' values."""

from pallas_kernels.extreme.op import LARGEST, SMALLEST, segment_extreme

__all__ = ["LARGEST", "SMALLEST", "segment_extreme"]

"""Weighted sums and means on a TPU: their message in the kernels of `passes/tpu_kernel.py`.

One copy an edge, forward and backward, and one more for the gradient of the weights, if anybody
asks for it. bfloat16 takes half the words only from 256 channels on, see `passes/tpu_tables.py`.
"""

from pallas_kernels.passes.accelerators import tpu_kernel
from pallas_kernels.weighted_sum.traced import traced

TPU = tpu_kernel(traced)

"""Weighted sums and means on the GPU: their message in the kernels of `passes/gpu_kernel.py`.

Gathers one row an edge, forward and backward; the gradient of the weights, if anybody asks for it,
is one more walk over the same rows. The gradient of a mean is divided by the number of edges before
it is gathered, in the type of the rows.
"""

from pallas_kernels.passes.accelerators import gpu_kernel
from pallas_kernels.weighted_sum.traced import traced

GPU = gpu_kernel(traced)

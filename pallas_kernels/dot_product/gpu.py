"""Dot-product attention on the GPU: its message in the kernels of `passes/gpu_kernel.py`.

Gathers K and V of an edge's sender, `2 H D b + 4` bytes for values of b bytes, with bias `4 H`
more, with dropout 4. For 8 heads of 16 in float32 that is 1028 bytes an edge, against some 500
floating-point operations.
"""

from pallas_kernels.dot_product.traced import traced
from pallas_kernels.passes.accelerators import gpu_kernel

GPU = gpu_kernel(traced)

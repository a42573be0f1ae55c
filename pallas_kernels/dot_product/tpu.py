"""Dot-product attention on a TPU: its message in the kernels of `passes/tpu_kernel.py`.

One copy fetches a sender's K and V, in bfloat16 as the halves of the same words.
"""

from pallas_kernels.dot_product.traced import traced
from pallas_kernels.passes.accelerators import tpu_kernel

TPU = tpu_kernel(traced)

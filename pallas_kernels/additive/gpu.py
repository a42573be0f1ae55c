"""GAT and GATv2 on the GPU: their messages in the kernels of `passes/gpu_kernel.py`.

GAT gathers one row and a number a head, GATv2 one row: about half the bytes of dot-product
attention forward. Backward by sender GAT gathers one row and three numbers a head of each
receiver, GATv2 two rows and two numbers, as dot-product attention does.
"""

from pallas_kernels.additive.traced import traced_gat, traced_gatv2
from pallas_kernels.passes.accelerators import gpu_kernel

GAT_GPU, GATV2_GPU = gpu_kernel(traced_gat), gpu_kernel(traced_gatv2)

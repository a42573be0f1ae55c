"""GAT and GATv2 on a TPU: their messages in the kernels of `passes/tpu_kernel.py`.

A sender's row is its value and, for GAT, one register more for its numbers of heads. A single table
of bfloat16 takes half the words only from 256 channels on, see `passes/tpu_tables.py`. Rows of
edges with channels, as GATv2 may have, are copied twice into the order of the kernel's slots.
"""

from pallas_kernels.additive.traced import traced_gat, traced_gatv2
from pallas_kernels.passes.accelerators import tpu_kernel

GAT_TPU, GATV2_TPU = tpu_kernel(traced_gat), tpu_kernel(traced_gatv2)

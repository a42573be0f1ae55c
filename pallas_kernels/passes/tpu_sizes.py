"""Sizes of what the TPU kernels hold in VMEM, and why.

Per tile of 256 slots and at 512 lanes of channels, in float32: two buffers of gathered rows (2 MiB
forward, 2.3 MiB for dK and dV), two of a block's own rows and two of its results (2 MiB each), and
some eight temporaries of a tile (0.5 MiB each): about 11 MiB by reckoning, which the compilers for
v5e, v5p, v6e and 7x accept under the limit below. More lanes would save copies, of which there is
one an edge and group of heads; but they fetch 4 KiB each by then, which should take longer than
starting them does. Nothing here has been tuned on a chip.
"""

from __future__ import annotations

GROUP_LANES = 512  # channels of the heads that one kernel call takes; more heads take more calls


def vmem_limit() -> int:
    """Bytes of VMEM that the kernels may use; the compiler's own limit is 16 MiB on v5e."""
    return 40 * 2**20

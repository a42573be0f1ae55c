"""A weighted row as kernels trace it."""

from __future__ import annotations

from typing import Any

import jax

from pallas_kernels.op import Op
from pallas_kernels.passes.traced import Channels, Traced


def traced(op: Op, width: int) -> Traced:
    """The same for sums and means."""
    return Traced(weighted_row)


def weighted_row(
    receiver: None, x: jax.Array, weight: Any, shared: None, channels: Channels
) -> jax.Array:
    """The sender's row, times the weight of the edge if there is one."""
    return x if weight is None else channels.spread(weight) * x

"""The largest or smallest of neighbours' values, channel by channel: GraphSAGE-pool, PNA.

Senders that tie share the gradient evenly. An edge costs one row of its sender; the backward pass
compares again instead of keeping who won.
"""

from __future__ import annotations

from typing import Literal

import jax
from jaxtyping import Array, Float

from pallas_kernels.driver import segment
from pallas_kernels.edges import Edges
from pallas_kernels.extreme.cpu import CPU
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import MAX, MIN


def sender_row(receiver: None, x_f: jax.Array, edge: None, shared: None) -> jax.Array:
    """The sender's row."""
    return x_f


LARGEST = Op("max", sender_row, MAX, splits=("channels",), kernels=(CPU,))
SMALLEST = Op("min", sender_row, MIN, splits=("channels",), kernels=(CPU,))


def segment_extreme(
    x_sf: Float[Array, "s f"],
    edges: Edges,
    *,
    reduce: Literal["max", "min"] = "max",
    kernel: str | Kernel = "auto",
) -> Float[Array, "r f"]:
    """The largest, or smallest, of senders' values over every receiver's in-edges; 0 over none."""
    return segment(LARGEST if reduce == "max" else SMALLEST, edges, sender=x_sf, kernel=kernel)

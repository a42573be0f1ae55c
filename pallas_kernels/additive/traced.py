"""GAT and GATv2 as kernels trace them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.op import Op
from pallas_kernels.passes.traced import Channels, Traced


def traced_gat(op: Op, width: int) -> Traced:
    """Logits are sums of numbers of heads."""
    slope: float = op.message.slope  # pyright: ignore[reportFunctionMemberAccess]

    def message(s: jax.Array, sender: Any, bias: Any, shared: None, channels: Channels) -> Any:
        t, v = sender
        total = s + t if bias is None else s + t + bias
        return _leaky_relu(total, slope), v

    return Traced(message)


def traced_gatv2(op: Op, width: int) -> Traced:
    """One row of the sender is in the score and is the value."""
    slope: float = op.message.slope  # pyright: ignore[reportFunctionMemberAccess]

    def message(left: jax.Array, right: jax.Array, e: Any, a: jax.Array, channels: Channels) -> Any:
        total = left + right if e is None else left + right + e
        return channels.sum(a * _leaky_relu(total, slope)), right

    return Traced(message)


def _leaky_relu(x: jax.Array, slope: float) -> jax.Array:
    return jnp.where(x >= 0, x, slope * x)

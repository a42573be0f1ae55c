"""Dot-product attention as kernels trace it."""

from __future__ import annotations

from typing import Any

import jax

from pallas_kernels.op import Op
from pallas_kernels.passes.traced import Channels, Traced


def traced(op: Op, width: int) -> Traced:
    """The scale goes to whichever end is walked by: once a row, not once an edge."""
    scale = width**-0.5

    def scaled_key(sender: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        k, v = sender
        return k * scale, v

    return Traced(attention, of_receiver=lambda q: q * scale, of_sender=scaled_key)


def attention(q: jax.Array, sender: Any, bias: Any, shared: None, channels: Channels) -> Any:
    """Logit and value."""
    k, v = sender
    logits = channels.sum(q * k)
    return logits if bias is None else logits + bias, v

"""Normalisation layers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


class NodeNorm(nnx.Module):
    """Batch normalisation over the nodes of the graph, padding left out.

    Training is full-batch, so the statistics of the whole graph are at hand in evaluation too and
    no running averages are kept.
    """

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        del rngs
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None) -> jax.Array:
        """Zero mean and unit variance in every channel, then scaled and shifted."""
        where = None if valid_n is None else valid_n[:, None]
        mean_f = x_nf.mean(axis=0, where=where)
        var_f = jnp.square(x_nf - mean_f).mean(axis=0, where=where)
        return (x_nf - mean_f) * jax.lax.rsqrt(var_f + 1e-5) * self.scale[...] + self.bias[...]


class RowNorm(nnx.Module):
    """A normalisation of each node by itself, with the signature of `NodeNorm`."""

    def __init__(self, kind: Callable[..., Any], width: int, *, rngs: nnx.Rngs):
        self.inner = kind(width, rngs=rngs)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None) -> jax.Array:
        """Normalise each row."""
        del valid_n
        return self.inner(x_nf)


class NoNorm(nnx.Module):
    """Leaves its input alone."""

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None) -> jax.Array:
        """Do nothing."""
        del valid_n
        return x_nf


def make_norm(kind: str, width: int, *, rngs: nnx.Rngs) -> NodeNorm | RowNorm | NoNorm:
    """The layer called `kind`: "layer", "rms", "batch" or "none"."""
    if kind == "batch":
        return NodeNorm(width, rngs=rngs)
    if kind == "none":
        return NoNorm()
    return RowNorm({"layer": nnx.LayerNorm, "rms": nnx.RMSNorm}[kind], width, rngs=rngs)

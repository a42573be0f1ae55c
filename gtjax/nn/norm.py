"""Normalisation layers by name.

Layer normalisation (Ba et al. 2016) and batch normalisation (Ioffe and Szegedy 2015) have their
gradients written out: JAX's own keeps three arrays of the size of the input for the one, this two
numbers a node; for the other this goes over the nodes four times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.recompute import Late, zero_after

EPSILON = 1e-6  # as in nnx.LayerNorm
SUMMED_APART = 4  # sums over the nodes that are added up at the end


class NodeNorm(nnx.Module):
    """Batch normalisation over the nodes of the graph, padding left out.

    Training is full-batch, so the statistics of the whole graph are at hand in evaluation too and
    no running averages are kept.
    """

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        del rngs
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None, late: Late = 0.0) -> jax.Array:
        """Zero mean and unit variance in every channel, then scaled and shifted."""
        counts_n = jnp.ones(len(x_nf), bool) if valid_n is None else valid_n
        return _node_norm(x_nf + late, self.scale[...], self.bias[...], counts_n)


def _node_forward(
    x_nf: jax.Array, scale_f: jax.Array, bias_f: jax.Array, counts_n: jax.Array
) -> tuple[jax.Array, Any]:
    weight_n = counts_n.astype(x_nf.dtype)
    share_n = weight_n / jnp.maximum(weight_n.sum(), 1.0)
    mean_f = over_nodes(share_n, x_nf)
    rstd_f = jax.lax.rsqrt(over_nodes(share_n, jnp.square(x_nf - mean_f)) + 1e-5)
    saved = (x_nf, scale_f, mean_f, rstd_f, share_n)
    return (x_nf - mean_f) * (rstd_f * scale_f) + bias_f, saved


def _node_backward(saved: Any, dy_nf: jax.Array) -> tuple[Any, ...]:
    x_nf, scale_f, mean_f, rstd_f, share_n = saved
    unit_nf = (x_nf - mean_f) * rstd_f
    every_n = jnp.ones(len(dy_nf), dy_nf.dtype)
    dbias_f, dscale_f = over_nodes(every_n, dy_nf), over_nodes(every_n, dy_nf * unit_nf)
    through_nf = share_n[:, None] * (dbias_f + unit_nf * dscale_f)
    return rstd_f * scale_f * (dy_nf - through_nf), dscale_f, dbias_f, None


_node_norm = jax.custom_vjp(lambda *inputs: _node_forward(*inputs)[0])
_node_norm.defvjp(_node_forward, _node_backward)


def over_nodes(weight_n: jax.Array, x_nf: jax.Array) -> jax.Array:
    """The weighted sum of all rows, as a product with a matrix of few rows.

    XLA on a CPU would compute what makes the rows anew in every reduction over them: twelve layers
    of batch normalisation, [10000, 64], forward and backward, take 140 ms with `sum` and 50 ms so,
    on one core of an AMD EPYC. Each row of the matrix has the weights of some nodes: a product with
    a vector adds up one by one and is off by 4e-5 at 170,000 nodes, this by 4e-7.
    """
    part_n = jnp.arange(len(weight_n)) % SUMMED_APART
    weight_pn = jnp.where(part_n == jnp.arange(SUMMED_APART)[:, None], weight_n, 0)
    return jnp.matmul(weight_pn, x_nf, precision="highest").sum(axis=0)


class RowNorm(nnx.Module):
    """A normalisation of each node by itself, with the signature of `NodeNorm`."""

    def __init__(self, kind: Callable[..., Any], width: int, *, rngs: nnx.Rngs):
        self.inner = kind(width, rngs=rngs)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None, late: Late = 0.0) -> jax.Array:
        """Normalise each row."""
        del valid_n
        scale, bias = getattr(self.inner, "scale", None), getattr(self.inner, "bias", None)
        if scale is not None and bias is not None:  # LayerNorm; RMSNorm has no bias
            return layer_norm(x_nf, scale[...], bias[...], late)
        return self.inner(x_nf + late)


def layer_norm(
    x_nf: jax.Array, scale_f: jax.Array, bias_f: jax.Array, late: Late = 0.0
) -> jax.Array:
    """Zero mean and unit variance in every row, then scaled and shifted: `nnx.LayerNorm`."""
    return _layer_norm(x_nf, scale_f, bias_f, late)


def _forward(
    x_nf: jax.Array, scale_f: jax.Array, bias_f: jax.Array, late: Late
) -> tuple[jax.Array, Any]:
    mean_n1 = x_nf.mean(axis=1, keepdims=True)
    square_n1 = jnp.square(x_nf).mean(axis=1, keepdims=True)
    variance_n1 = jnp.maximum(0.0, square_n1 - jnp.square(mean_n1))
    factor_nf = jax.lax.rsqrt(variance_n1 + late + EPSILON) * scale_f
    return (x_nf - mean_n1) * factor_nf + bias_f, (x_nf, scale_f, mean_n1, variance_n1, late)


def _backward(saved: Any, dy_nf: jax.Array) -> tuple[Any, ...]:
    # The normalised rows are made again, and not before they are needed.
    x_nf, scale_f, mean_n1, variance_n1, late = saved
    rstd_n1 = jax.lax.rsqrt(variance_n1 + zero_after(dy_nf) + EPSILON)
    unit_nf = (x_nf - mean_n1) * rstd_n1
    # Means over channels as products with the scale: XLA would write the scale out for every node.
    mean_f1 = scale_f[:, None] / x_nf.shape[1]
    product = partial(jnp.matmul, precision="highest")
    along_n1, mean_dy_n1 = product(dy_nf * unit_nf, mean_f1), product(dy_nf, mean_f1)
    dx_nf = rstd_n1 * (dy_nf * scale_f - mean_dy_n1 - unit_nf * along_n1)
    return dx_nf, (dy_nf * unit_nf).sum(axis=0), dy_nf.sum(axis=0), jnp.zeros_like(late)


_layer_norm = jax.custom_vjp(lambda *inputs: _forward(*inputs)[0])
_layer_norm.defvjp(_forward, _backward)


class NoNorm(nnx.Module):
    """Leaves its input alone."""

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None, late: Late = 0.0) -> jax.Array:
        """Do nothing."""
        del valid_n, late
        return x_nf


Norm = NodeNorm | RowNorm | NoNorm


def make_norm(kind: str, width: int, *, rngs: nnx.Rngs) -> Norm:
    """The layer called `kind`: "layer", "rms", "batch" or "none"."""
    if kind == "batch":
        return NodeNorm(width, rngs=rngs)
    if kind == "none":
        return NoNorm()
    return RowNorm({"layer": nnx.LayerNorm, "rms": nnx.RMSNorm}[kind], width, rngs=rngs)

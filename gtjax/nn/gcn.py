"""GCN: sums of neighbours with symmetric weights (Kipf and Welling 2017).

The weight of an edge, `1 / sqrt(degree_i degree_j)`, is a factor of each end, so nothing is stored
or multiplied per edge, and an edge costs one row of its sender: the cheapest of all models here.
Choose it first. The graph's own edges are used; preparation adds self-loops by default.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import GCNConfig
from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.sparse import SparseRows
from gtjax.nn.stack import Stack


def symmetric_sum(x_nf: jax.Array, neighbours: Neighbours) -> jax.Array:
    """`D^-1/2 A D^-1/2 X`, where degrees count the edges that arrive."""
    degree_n1 = neighbours.degree_n[:, None]
    root_n1 = jnp.where(degree_n1 > 0, jax.lax.rsqrt(jnp.maximum(degree_n1, 1.0)), 0.0)
    return neighbours.own(root_n1) * neighbours.sum(root_n1 * x_nf)


class GCNConv(nnx.Module):
    """`D^-1/2 A D^-1/2 X W + b`, where degrees count the edges that arrive."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        self.linear = dense(inputs, outputs, bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(outputs))

    def __call__(self, x_nf: jax.Array | SparseRows, neighbours: Neighbours) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        return symmetric_sum(self.linear(x_nf), neighbours) + self.bias[...]


class GCN(nnx.Module):
    """Graph convolutions one after the other."""

    Config = GCNConfig
    reads_sparse = True

    def __init__(self, config: GCNConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        def make(inputs: int, outputs: int) -> GCNConv:
            return GCNConv(inputs, outputs, rngs=rngs)

        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        return self.stack(inputs, neighbours, lambda conv, x_nf, near: conv(x_nf, near))

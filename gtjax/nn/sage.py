"""GraphSAGE: a node by one matrix, the mean (or maximum, or sum) of its neighbours by another.

Hamilton et al. 2017. An edge costs one row of its sender, of the narrower side of the matrix where
the aggregation is linear. Choose it where a node has to be told from its neighbours: heterophilous
graphs, or large ones together with sampling. With self-loops, which preparation adds by default, a
node is also among its own neighbours.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import SAGEConfig
from gtjax.nn.dense import Dense, dense, sum_of_both
from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.sparse import SparseRows, is_sparse
from gtjax.nn.stack import Stack


class SAGEConv(nnx.Module):
    """`W_neighbours aggregate(x_j) + b + W_own x_i`; a residual layer joins the last product."""

    takes_residual = True

    def __init__(
        self,
        inputs: int,
        outputs: int,
        aggregation: Literal["mean", "max", "sum"] = "mean",
        *,
        rngs: nnx.Rngs,
    ):
        self.aggregation = aggregation
        self.neighbours = dense(inputs, outputs, bias=False, rngs=rngs)
        self.own = dense(inputs, outputs, bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.narrows = outputs < inputs

    def __call__(
        self,
        x_nf: jax.Array | SparseRows,
        neighbours: Neighbours,
        residual: Dense | None = None,
    ) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs], with what a residual layer makes of x added."""
        aggregate = getattr(neighbours, self.aggregation)
        narrows = self.narrows or is_sparse(x_nf)
        if narrows and self.aggregation != "max":  # narrow rows are cheaper to gather
            others_nf = aggregate(self.neighbours(x_nf))
        else:
            others_nf = self.neighbours(aggregate(x_nf))
        own_nf = sum_of_both(self.own, residual, neighbours.own(x_nf))
        return others_nf + self.bias[...] + own_nf


class GraphSAGE(nnx.Module):
    """GraphSAGE convolutions one after the other."""

    Config = SAGEConfig

    def __init__(self, config: SAGEConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        def make(inputs: int, outputs: int) -> SAGEConv:
            return SAGEConv(inputs, outputs, config.aggregation, rngs=rngs)

        # A maximum is of the features themselves.
        self.reads_sparse = config.aggregation != "max" or config.input_layer
        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        return self.stack(inputs, neighbours, lambda conv, *given: conv(*given))

"""GIN: a small network of a node and the sum of its neighbours (Xu et al. 2019).

Sums, unlike means, tell how many neighbours there are, which makes it as strong as the
Weisfeiler-Lehman test. An edge costs one row of its sender. Choose it where degrees and counts
matter, as in molecules; on graphs with large hubs use it with a normalisation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import GINConfig
from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.sparse import SparseRows, is_sparse
from gtjax.nn.stack import Stack


class GINConv(nnx.Module):
    """`MLP((1 + eps) x_i + sum_j x_j)`, with two linear layers and a ReLU between them."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        eps: float = 0.0,
        *,
        train_eps: bool = False,
        rngs: nnx.Rngs,
    ):
        self.up = dense(inputs, outputs, bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.down = dense(outputs, outputs, rngs=rngs)
        self.eps = nnx.Param(jnp.float32(eps)) if train_eps else eps
        self.narrows = outputs < inputs

    def __call__(self, x_nf: jax.Array | SparseRows, neighbours: Neighbours) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        own = 1.0 + (self.eps[...] if isinstance(self.eps, nnx.Param) else self.eps)
        narrows = self.narrows or is_sparse(x_nf)
        rows_nf: Any = self.up(x_nf) if narrows else x_nf  # narrow rows are cheaper to gather
        sum_nf = own * neighbours.own(rows_nf) + neighbours.sum(rows_nf)
        hidden_nf = sum_nf if narrows else self.up(sum_nf)
        return self.down(jax.nn.relu(hidden_nf + self.bias[...]))


class GIN(nnx.Module):
    """GIN convolutions one after the other."""

    Config = GINConfig
    reads_sparse = True

    def __init__(self, config: GINConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        def make(inputs: int, outputs: int) -> GINConv:
            return GINConv(inputs, outputs, config.eps, train_eps=config.train_eps, rngs=rngs)

        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        return self.stack(inputs, neighbours, lambda conv, x_nf, near: conv(x_nf, near))

"""GAT: additive attention from two numbers a node and head (Velickovic et al. 2018).

The score of an edge is `leaky_relu(a_receiver . W x_i + a_sender . W x_j + bias_ij)`: one number of
each end, so an edge costs its sender's number and value, about half of what dot-product attention
gathers. How the senders rank is the same for every receiver; where that is too little, take GATv2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import AdditiveConfig, GATConfig
from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Dropped, Neighbours
from gtjax.nn.sparse import SparseRows
from gtjax.nn.stack import Stack


class GATConv(nnx.Module):
    """Additive attention with `heads` heads, side by side in the output.

    Edge features, if there are any, add a bias to the score of each head.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        heads: int = 1,
        edge_features: int = 0,
        *,
        slope: float = 0.2,
        bias: bool = True,
        rngs: nnx.Rngs,
    ):
        self.heads, self.slope = heads, slope
        self.linear = dense(inputs, outputs, bias=False, rngs=rngs)
        vector = (heads, outputs // heads)
        draw = nnx.initializers.xavier_uniform()
        self.receiver = nnx.Param(draw(rngs.params(), vector))
        self.sender = nnx.Param(draw(rngs.params(), vector))
        self.edge = dense(edge_features, heads, bias=False, rngs=rngs) if edge_features else None
        self.bias = nnx.Param(jnp.zeros(outputs)) if bias else None

    def __call__(
        self,
        x_nf: jax.Array | SparseRows,
        neighbours: Neighbours,
        edge_x_ef: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        nodes = x_nf.shape[0]
        values_nf = self.linear(x_nf)
        values_nhd = values_nf.reshape(nodes, self.heads, values_nf.shape[1] // self.heads)
        receiver_nh = (values_nhd * self.receiver[...]).sum(axis=-1)
        sender_nh = (values_nhd * self.sender[...]).sum(axis=-1)
        out_nhd = neighbours.attend_additive(
            receiver_nh,
            sender_nh,
            values_nhd,
            edge_rows(self.edge, edge_x_ef),
            slope=self.slope,
            dropout=dropout,
        )
        out_nf = out_nhd.reshape(len(out_nhd), values_nf.shape[1])
        return out_nf if self.bias is None else out_nf + self.bias[...]


class AdditiveStack(nnx.Module):
    """Layers of additive attention one after the other; `conv` says of which kind."""

    conv: ClassVar[Callable[..., nnx.Module]]
    reads_sparse = True

    def __init__(self, config: AdditiveConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        def make(inputs: int, outputs: int) -> nnx.Module:
            edge, options = sizes.edge_features, {"slope": config.slope, "rngs": rngs}
            return type(self).conv(inputs, outputs, config.heads, edge, **options)

        self.rate = config.attention_dropout
        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""

        def run(conv: Callable[..., jax.Array], x_nf: jax.Array, near: Neighbours) -> jax.Array:
            dropout = inputs.noise.edges(self.rate)
            return conv(x_nf, near, inputs.edge_x_ef, dropout=dropout)

        return self.stack(inputs, neighbours, run)


class GAT(AdditiveStack):
    """Graph attention layers one after the other."""

    Config = GATConfig
    conv = GATConv


def edge_rows(layer: nnx.Linear | None, edge_x_ef: jax.Array | None) -> jax.Array | None:
    """What a layer makes of the features of every edge; None where it was made for none."""
    if layer is None:
        return None
    if edge_x_ef is None:
        raise ValueError("this model was made for edge features; the graph has none")
    return layer(edge_x_ef)

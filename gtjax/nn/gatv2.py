"""GATv2: additive attention in which every receiver ranks senders its own way (Brody et al. 2022).

The score of an edge is `a . leaky_relu(W_receiver x_i + W_sender x_j + W_edge e_ij)`. One row of
the sender serves for score and value, so an edge costs that row, and arithmetic over its width.
Edge features cost a row per edge as wide as the model.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import GATv2Config
from gtjax.nn.dense import dense
from gtjax.nn.gat import AdditiveStack, edge_rows
from gtjax.nn.neighbours import Dropped, Neighbours
from gtjax.nn.sparse import SparseRows


class GATv2Conv(nnx.Module):
    """Dynamic additive attention with `heads` heads, side by side in the output."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        heads: int = 1,
        edge_features: int = 0,
        *,
        slope: float = 0.2,
        rngs: nnx.Rngs,
    ):
        self.heads, self.slope = heads, slope
        self.sender = dense(inputs, outputs, rngs=rngs)
        self.receiver = dense(inputs, outputs, rngs=rngs)
        self.edge = dense(edge_features, outputs, bias=False, rngs=rngs) if edge_features else None
        draw = nnx.initializers.xavier_uniform()
        self.vector = nnx.Param(draw(rngs.params(), (heads, outputs // heads)))
        self.bias = nnx.Param(jnp.zeros(outputs))

    def __call__(
        self,
        x_nf: jax.Array | SparseRows,
        neighbours: Neighbours,
        edge_x_ef: jax.Array | None = None,
        *,
        dropout: Dropped | None = None,
    ) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        edge_ef = edge_rows(self.edge, edge_x_ef)
        out_nhd = neighbours.attend_additive(
            self._by_head(self.receiver(neighbours.own(x_nf))),
            self._by_head(self.sender(x_nf)),
            bias=None if edge_ef is None else self._by_head(edge_ef),
            vector_hd=self.vector[...],
            slope=self.slope,
            dropout=dropout,
        )
        return out_nhd.reshape(len(out_nhd), self.bias.shape[0]) + self.bias[...]

    def _by_head(self, rows: jax.Array) -> jax.Array:
        return rows.reshape(rows.shape[0], self.heads, rows.shape[1] // self.heads)


class GATv2(AdditiveStack):
    """GATv2 layers one after the other."""

    Config = GATv2Config
    conv = GATv2Conv

"""A graph-transformer layer by itself: dot-product attention and a linear skip (Shi et al. 2021).

What `GraphTransformer` does within its blocks, as a layer for models of one's own; parameters are
those of PyG's `TransformerConv` (`gtjax.nn.load_pyg`).
"""

from __future__ import annotations

import jax
from flax import nnx

from gtjax.nn.dense import dense
from gtjax.nn.neighbours import Dropped, Neighbours


class TransformerConv(nnx.Module):
    """`heads` heads, side by side in the output, and a linear layer of the node itself."""

    def __init__(self, inputs: int, outputs: int, heads: int = 1, *, rngs: nnx.Rngs):
        self.heads = heads
        self.query, self.key, self.value, self.skip = (
            dense(inputs, outputs, rngs=rngs) for _ in range(4)
        )

    def __call__(
        self, x_nf: jax.Array, neighbours: Neighbours, *, dropout: Dropped | None = None
    ) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""

        def by_head(layer: nnx.Linear) -> jax.Array:
            rows_nf = layer(x_nf)
            return rows_nf.reshape(len(rows_nf), self.heads, rows_nf.shape[1] // self.heads)

        rows = (by_head(layer) for layer in (self.query, self.key, self.value))
        out_nhd = neighbours.attend(*rows, dropout=dropout)
        return out_nhd.reshape(len(x_nf), -1) + self.skip(x_nf)

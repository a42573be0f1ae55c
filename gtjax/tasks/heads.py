"""Heads: from embeddings of nodes to what a task asks for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs


class LinearHead(nnx.Module):
    """Dropout, then a dense layer."""

    def __init__(self, width: int, outputs: int, dropout: float, dtype: str, *, rngs: nnx.Rngs):
        self.rate = dropout
        self.linear = dense(width, outputs, dtype=dtype, rngs=rngs)

    def __call__(self, embeddings_nf: jax.Array, inputs: Inputs) -> jax.Array:
        """The outputs, [nodes, outputs]."""
        return self.linear(inputs.noise.drop(embeddings_nf, self.rate))


class PooledHead(nnx.Module):
    """The nodes of each graph become one row, then as `LinearHead`.

    Sums over nodes that are spread over devices are one all-reduce of a row a graph.
    """

    def __init__(
        self, pool: str, width: int, outputs: int, dropout: float, dtype: str, *, rngs: nnx.Rngs
    ):
        self.pool = pool
        self.score = dense(width, 1, rngs=rngs) if pool == "attention" else None
        self.head = LinearHead(width, outputs, dropout, dtype, rngs=rngs)

    def __call__(self, embeddings_nf: jax.Array, inputs: Inputs) -> jax.Array:
        """The outputs, [graphs, outputs]; `inputs.asked` is a `Membership`."""
        graph_n, count = inputs.asked.graph_n, len(inputs.asked.size_g)
        rows_gf = self._pooled(embeddings_nf, graph_n, count, inputs.asked.size_g)
        return self.head(rows_gf, inputs)

    def _pooled(self, x_nf: jax.Array, graph_n: jax.Array, count: int, size_g: Any) -> jax.Array:
        def reduced(reduce: Any, rows: jax.Array) -> jax.Array:
            return reduce(rows, graph_n, count + 1)[1:]  # 0 are rows of padding

        if self.pool == "max":
            most_gf = reduced(jax.ops.segment_max, x_nf)
            return jnp.where((size_g > 0)[:, None], most_gf, 0.0)
        if self.score is not None:
            logit_n1 = self.score(x_nf)
            most = jax.ops.segment_max(logit_n1, graph_n, count + 1)
            weight_n1 = jnp.exp(logit_n1 - jax.lax.stop_gradient(most)[graph_n])
            total_g1 = reduced(jax.ops.segment_sum, weight_n1)
            return reduced(jax.ops.segment_sum, weight_n1 * x_nf) / jnp.maximum(total_g1, 1e-30)
        total_gf = reduced(jax.ops.segment_sum, x_nf)
        return total_gf if self.pool == "sum" else total_gf / jnp.maximum(size_g, 1)[:, None]

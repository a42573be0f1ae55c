"""From two embeddings to a score: the larger, the likelier an edge joins their nodes.

Where direction means nothing, (u, v) and (v, u) get the same score. A new decoder is a class like
those here and a line in `DECODERS`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs


class PairHead(nnx.Module):
    """Scores of pairs of nodes, list by list."""

    def __init__(self, decoder: Any, dropout: float):
        self.decoder, self.rate = decoder, dropout

    def __call__(self, embeddings_nf: jax.Array, inputs: Inputs) -> dict[str, jax.Array]:
        """A score for each pair of rows of each list of `inputs.asked`; of padding, anything."""
        x_nf = inputs.noise.drop(embeddings_nf, self.rate)

        def scores(pairs_k2: jax.Array) -> jax.Array:
            first_k, second_k = jnp.maximum(pairs_k2, 0).T
            return self.decoder(x_nf[first_k], x_nf[second_k])

        return {name: scores(pairs_k2) for name, pairs_k2 in inputs.asked.items()}


class Dot(nnx.Module):
    """The inner product over the root of the width, and a number that says how rare edges are."""

    def __init__(self, width: int, directed: bool, dtype: str, *, rngs: nnx.Rngs):
        del directed, dtype, rngs
        self.scale = width**-0.5
        self.bias = nnx.Param(jnp.zeros(()))

    def __call__(self, first_kf: jax.Array, second_kf: jax.Array) -> jax.Array:
        """One product."""
        return self.scale * (first_kf * second_kf).sum(axis=1) + self.bias[...]


class Bilinear(nnx.Module):
    """`u W v`; with a symmetric W where direction means nothing."""

    def __init__(self, width: int, directed: bool, dtype: str, *, rngs: nnx.Rngs):
        self.directed = directed
        self.linear = dense(width, width, dtype=dtype, bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(()))

    def __call__(self, first_kf: jax.Array, second_kf: jax.Array) -> jax.Array:
        """One product through the matrix."""
        score_k = (self.linear(first_kf) * second_kf).sum(axis=1)
        if not self.directed:
            score_k = (score_k + (self.linear(second_kf) * first_kf).sum(axis=1)) / 2
        return score_k + self.bias[...]


class MLP(nnx.Module):
    """A hidden layer over the product of the two rows, or over both where direction counts."""

    def __init__(self, width: int, directed: bool, dtype: str, *, rngs: nnx.Rngs):
        self.directed = directed
        self.hidden = dense(2 * width if directed else width, width, dtype=dtype, rngs=rngs)
        self.out = dense(width, 1, dtype=dtype, rngs=rngs)

    def __call__(self, first_kf: jax.Array, second_kf: jax.Array) -> jax.Array:
        """Two layers."""
        both = (first_kf, second_kf)
        x_kf = jnp.concatenate(both, axis=1) if self.directed else first_kf * second_kf
        return self.out(jax.nn.relu(self.hidden(x_kf)))[:, 0]


DECODERS: dict[str, Any] = {"dot": Dot, "bilinear": Bilinear, "mlp": MLP}

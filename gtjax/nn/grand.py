"""GRAND: random propagation of the features, then a node-wise network (Feng et al. 2020).

DropNode zeroes whole rows of the features, the mean of the powers 0..K of the adjacency with
symmetric weights spreads what is left, and two dense layers (the second is the task's head) make
classes of it. Each draw of DropNode is another view of the graph, so that it suits training for
consistency between views (`gtjax/recipes/consistency.py`) where labels are few. As in the paper,
training does not scale up what it keeps: evaluation scales all features down instead.

An edge costs K rows as wide as the features, but as narrow as the model where nothing comes between
propagation and the first matrix (no normalisation, no dropout of propagated features, or
evaluation): propagation is linear, so the matrix goes first. Otherwise the gradient needs no edges
at all. So `feature_dropout`, which drops before propagation and is not of the paper, takes a small
part of the time of its `input_dropout`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import GRANDConfig
from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs, joined, joined_width
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.noise import Noise
from gtjax.nn.norm import make_norm

DIVISIBLE = 8  # what wide rows are padded to a multiple of, so that strategies can divide them


class GRAND(nnx.Module):
    """DropNode, propagation, and the hidden layer of a node-wise network."""

    Config = GRANDConfig

    def __init__(self, config: GRANDConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config, self.sizes = config, sizes
        self.width = joined_width(config, sizes)
        self.narrows = config.norm == "none" and config.hidden < self.width
        self.reads_sparse = self.narrows and config.input_dropout == 0
        self.input_norm = make_norm(config.norm, self.width, rngs=rngs)
        self.linear = dense(self.width, config.hidden, bias=False, rngs=rngs)
        self.bias = nnx.Param(jnp.zeros(config.hidden))
        self.norm = make_norm(config.norm, config.hidden, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        config, noise = self.config, inputs.noise
        x_nf: Any = noise.drop(joined(config, self.sizes, inputs), config.feature_dropout)
        valid_n = neighbours.last(1).own(inputs.valid_n)
        if self.narrows and (noise.quiet or config.input_dropout == 0):
            h_nf = self._dropped(self.linear(x_nf), noise)
            h_nf = self._propagated(h_nf, noise, neighbours)
        else:
            x_nf = jnp.pad(x_nf, ((0, 0), (0, -self.width % DIVISIBLE)))  # once for all steps
            x_nf = self._dropped(x_nf, noise)
            x_nf = self._propagated(x_nf, noise, neighbours)[:, : self.width]
            inputs.see("propagated", x_nf)
            x_nf = noise.drop(self.input_norm(x_nf, valid_n), config.input_dropout)
            h_nf = self.linear(x_nf)
        h_nf = jax.nn.relu(h_nf + self.bias[...])
        inputs.see("hidden", h_nf)
        return self.norm(h_nf, valid_n)

    def _dropped(self, x_nf: jax.Array, noise: Noise) -> jax.Array:
        """Without the rows of some nodes; in evaluation less of all."""
        rate = self.config.drop_nodes
        return (1 - rate) * x_nf if noise.quiet else noise.drop_nodes(x_nf, rate)

    def _propagated(self, x_nf: jax.Array, noise: Noise, neighbours: Neighbours) -> jax.Array:
        """The mean of x, A x, ... and A^K x.

        By means over neighbours: `A = D^-1/2 B D^-1/2`, so `A^k x = D^1/2 (D^-1 B)^k D^-1/2 x`:
        rows are scaled once before and once after all rounds.
        """
        rounds, degree_n1 = self.config.layers, neighbours.degree_n[:, None]
        mixed_nf = jnp.where(degree_n1 > 0, jax.lax.rsqrt(jnp.maximum(degree_n1, 1.0)), 0.0) * x_nf
        total_nf = jnp.zeros_like(mixed_nf)
        for number in range(rounds):
            near = neighbours.last(rounds - number)
            mixed_nf = near.mean(mixed_nf)
            total_nf = near.own(total_nf) + mixed_nf
            x_nf, degree_n1 = near.own(x_nf), near.own(degree_n1)
            noise.keep(near.own)
        return (x_nf + jnp.sqrt(degree_n1) * total_nf) / (rounds + 1)

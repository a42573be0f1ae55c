"""The graph-transformer block: attention over edges, an optional global branch, feed-forward.

Pre-norm, with residuals in float32. A block computes queries, keys and values and leaves the
attention itself to the neighbours, so it does not know how, or over how many devices, that is done.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import TransformerConfig
from gtjax.nn.dense import linear
from gtjax.nn.inputs import Inputs
from gtjax.nn.linear_attention import sigmoid_attention
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.noise import Noise
from gtjax.nn.norm import Norm, make_norm
from gtjax.nn.recompute import Late, recomputed


def normed_linear(
    config: TransformerConfig,
    norm: Norm,
    layer: nnx.Linear,
    x_nf: jax.Array,
    valid_n: jax.Array | None,
) -> jax.Array:
    """A dense layer of the normalised input, which is not kept if `remat` says so."""

    def run(modules: tuple[Norm, nnx.Linear], x_nf: jax.Array, late: Late) -> jax.Array:
        norm, layer = modules
        return layer(norm(x_nf, valid_n, late))

    if config.remat != "none":
        return recomputed(run, (norm, layer), x_nf)
    return run((norm, layer), x_nf, 0.0)


class EdgeBias(nnx.Module):
    """A bias per edge and head from the features of the edge; none where there are no features."""

    def __init__(self, config: Any, num_edge_features: int, *, rngs: nnx.Rngs):
        self.weights = (
            linear(num_edge_features, config.heads, config, rngs) if num_edge_features else None
        )

    def __call__(self, edge_x_ef: jax.Array | None) -> jax.Array | None:
        """The bias, [edges, heads]."""
        if self.weights is None:
            return None
        if edge_x_ef is None:
            raise ValueError("this model was made for edge features; the graph has none")
        return self.weights(edge_x_ef)


class EdgeAttention(nnx.Module):
    """Multi-head attention over edges, with a bias per edge and head from edge features."""

    def __init__(self, config: TransformerConfig, num_edge_features: int, *, rngs: nnx.Rngs):
        self.config = config
        self.qkv = linear(config.hidden, 3 * config.hidden, config, rngs)
        self.out = linear(config.hidden, config.hidden, config, rngs)
        self.bias = EdgeBias(config, num_edge_features, rngs=rngs)

    def __call__(
        self,
        x_nf: jax.Array,
        norm: Norm,
        inputs: Inputs,
        neighbours: Neighbours,
    ) -> jax.Array:
        """Normalise, attend, and mix the heads."""
        config = self.config
        by_head = (x_nf.shape[0], config.heads, config.hidden // config.heads)
        qkv = normed_linear(config, norm, self.qkv, x_nf, inputs.valid_n)
        qkv = qkv.astype(config.attention_dtype)
        # Not by slices, whose gradients are three arrays full of zeros, added up; and apart before
        # they are by head, since a TPU pads the last axis of what it keeps to 128.
        q_nhd, k_nhd, v_nhd = (part.reshape(by_head) for part in jnp.split(qkv, 3, axis=1))
        bias_eh = self.bias(inputs.edge_x_ef)
        dropout = inputs.noise.edges(config.attention_dropout)
        out_nhd = neighbours.attend(q_nhd, k_nhd, v_nhd, bias_eh, dropout=dropout)
        return self.out(out_nhd.reshape(x_nf.shape[0], config.hidden))


class GlobalAttention(nnx.Module):
    """Attention from every node to every node, by `sigmoid_attention`."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.config = config
        self.qkv = linear(config.hidden, 3 * config.hidden, config, rngs)
        self.out = linear(config.hidden, config.hidden, config, rngs)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None, norm: Norm) -> jax.Array:
        """Normalise, attend to all valid nodes, and mix the heads."""
        config = self.config
        nodes = x_nf.shape[0]
        by_head = (nodes, config.heads, config.hidden // config.heads)
        qkv = normed_linear(config, norm, self.qkv, x_nf, valid_n)
        q_nhd, k_nhd, v_nhd = (part.reshape(by_head) for part in jnp.split(qkv, 3, axis=1))
        out_nhd = sigmoid_attention(q_nhd, k_nhd, v_nhd, valid_n)
        return self.out(out_nhd.reshape(nodes, config.hidden))


class FeedForward(nnx.Module):
    """Normalisation, then two dense layers with a GELU between them."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        width = max(1, round(config.hidden * config.feed_forward))
        self.config = config
        self.norm = make_norm(config.norm, config.hidden, rngs=rngs)
        self.up = linear(config.hidden, width, config, rngs)
        self.down = linear(width, config.hidden, config, rngs)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None, noise: Noise) -> jax.Array:
        """Widen, bend, narrow."""
        config, drop = self.config, noise.dropper(self.config.dropout)
        wide_nf = normed_linear(config, self.norm, self.up, x_nf, valid_n)

        def narrow(down: nnx.Linear, wide_nf: jax.Array, late: Late) -> jax.Array:
            return down(drop(jax.nn.gelu(wide_nf + late)))

        if config.remat != "none":
            return recomputed(narrow, self.down, wide_nf)
        return narrow(self.down, wide_nf, 0.0)


class Block(nnx.Module):
    """One layer of the graph transformer; `depth` is 1 for the last, and less for earlier ones."""

    def __init__(
        self,
        config: TransformerConfig,
        num_edge_features: int,
        *,
        depth: float = 1.0,
        rngs: nnx.Rngs,
    ):
        self.rate, self.branch_rate = config.dropout, depth * config.drop_layers
        self.norm = make_norm(config.norm, config.hidden, rngs=rngs)
        self.attention = EdgeAttention(config, num_edge_features, rngs=rngs)
        self.everywhere = GlobalAttention(config, rngs=rngs) if config.global_attention else None
        self.feed_forward = FeedForward(config, rngs=rngs) if config.feed_forward else None

    def __call__(
        self, x_nf: jax.Array, inputs: Inputs, neighbours: Neighbours, name: str = "block"
    ) -> jax.Array:
        """Attention branch, then feed-forward branch, each added to its input."""
        noise, valid_n = inputs.noise, inputs.valid_n
        change_nf = self.attention(x_nf, self.norm, inputs, neighbours)
        inputs.see(f"{name}.attention", change_nf)
        if self.everywhere is not None:
            global_nf = self.everywhere(x_nf, valid_n, self.norm)
            inputs.see(f"{name}.global attention", global_nf)
            change_nf += global_nf
        x_nf = x_nf + self._dropped(change_nf, noise)
        if self.feed_forward is not None:
            change_nf = self.feed_forward(x_nf, valid_n, noise)
            inputs.see(f"{name}.feed-forward", change_nf)
            x_nf = x_nf + self._dropped(change_nf, noise)
        return x_nf

    def _dropped(self, change_nf: jax.Array, noise: Noise) -> jax.Array:
        return noise.drop_branch(noise.drop(change_nf, self.rate), self.branch_rate)

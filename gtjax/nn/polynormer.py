"""Polynormer: layers whose output is a product with their input, so that depth is a degree.

Deng, Yue and Zhang 2024. A local layer is additive attention over edges plus a linear layer,
multiplied by a gate of its own input: L layers are a polynomial of degree 2^L of the features. The
outputs of all local layers are summed; global layers, linear attention from every node to every
node with the same kind of product, follow. Choose it for heterophilous and mid-sized graphs.

The authors train the local layers by themselves first, and go on from the best of that with the
global ones: `--model.local-steps 200` does, in one run (`gtjax/runs/phases.py`). Their two phases
have an output layer each; here both are the task's head. An edge costs what it costs in GAT.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import PolynormerConfig
from gtjax.nn.dense import dense
from gtjax.nn.gat import GATConv
from gtjax.nn.inputs import InputLayer, Inputs
from gtjax.nn.linear_attention import sigmoid_attention
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm


class Share(nnx.Module):
    """A number of each channel: learned within (0, 1), or learned freely from a given start."""

    def __init__(self, width: int, start: float):
        self.bounded = start < 0
        self.values = nnx.Param(jnp.full(width, 0.0 if self.bounded else start))

    def __call__(self) -> jax.Array:
        """One number a channel."""
        return jax.nn.sigmoid(self.values[...]) if self.bounded else self.values[...]


class LocalLayer(nnx.Module):
    """`(1 - b) norm(relu(V x) * x') + b x'` with `x' = drop(relu(attention(x) + W x))`."""

    def __init__(self, config: PolynormerConfig, edge_features: int, *, rngs: nnx.Rngs):
        width = config.hidden
        self.rate = config.dropout
        self.before = make_norm("layer", width, rngs=rngs) if config.pre_norm else None
        self.gate = dense(width, width, rngs=rngs)
        self.attention = GATConv(width, width, config.heads, edge_features, bias=False, rngs=rngs)
        self.own = dense(width, width, rngs=rngs)
        self.norm = make_norm("layer", width, rngs=rngs)
        self.share = Share(width, config.beta)

    def __call__(self, x_nf: jax.Array, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """[nodes, hidden] to the same."""
        if self.before is not None:
            x_nf = self.before(x_nf, inputs.valid_n)
        gate_nf = jax.nn.relu(self.gate(x_nf))
        mixed_nf = self.attention(x_nf, neighbours, inputs.edge_x_ef) + self.own(x_nf)
        mixed_nf = inputs.noise.drop(jax.nn.relu(mixed_nf), self.rate)
        share_f = self.share()
        return (1 - share_f) * self.norm(gate_nf * mixed_nf, inputs.valid_n) + share_f * mixed_nf


class GlobalLayer(nnx.Module):
    """`norm(attention(x)) * (H x + b)`, where queries and keys are the same."""

    def __init__(self, config: PolynormerConfig, *, rngs: nnx.Rngs):
        width = config.hidden
        self.heads = config.heads
        self.gate = dense(width, width, rngs=rngs)
        self.key = dense(width, width, rngs=rngs)
        self.value = dense(width, width, rngs=rngs)
        self.norm = make_norm("layer", width, rngs=rngs)
        self.share = Share(width, config.beta)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None) -> jax.Array:
        """[nodes, hidden] to the same."""
        by_head = (x_nf.shape[0], self.heads, x_nf.shape[1] // self.heads)
        k_nhd, v_nhd = (layer(x_nf).reshape(by_head) for layer in (self.key, self.value))
        out_nf = sigmoid_attention(k_nhd, k_nhd, v_nhd, valid_n).reshape(x_nf.shape)
        return self.norm(out_nf, valid_n) * (self.gate(x_nf) + self.share())


class Polynormer(nnx.Module):
    """Local layers, summed; then global layers with one output layer between them."""

    Config = PolynormerConfig
    reads_sparse = True

    def __init__(self, config: PolynormerConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config = config
        self.input = InputLayer(config, sizes, rngs=rngs)
        edges = sizes.edge_features
        self.local = nnx.List([LocalLayer(config, edges, rngs=rngs) for _ in range(config.layers)])
        self.everywhere = nnx.List(
            [GlobalLayer(config, rngs=rngs) for _ in range(config.global_layers)]
        )
        if config.global_layers:
            self.norm = make_norm("layer", config.hidden, rngs=rngs)
            self.out = dense(config.hidden, config.hidden, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        x_nf = self.input(inputs)
        sum_nf = jnp.zeros_like(x_nf)
        for number, layer in enumerate(self.local):
            x_nf = layer(x_nf, inputs, neighbours)
            inputs.see(f"local.{number}", x_nf)
            sum_nf += x_nf
        if not self.config.global_layers or (self.config.phase_steps and inputs.phase == 0):
            return sum_nf
        x_nf = self.norm(sum_nf, inputs.valid_n)
        for number, layer in enumerate(self.everywhere):
            x_nf = jax.nn.relu(self.out(layer(x_nf, inputs.valid_n)))
            x_nf = inputs.noise.drop(x_nf, self.config.global_dropout)
            inputs.see(f"global.{number}", x_nf)
        return x_nf

"""SGFormer: one layer of simple global attention beside a graph convolutional network.

Wu et al. 2023 ("Simplifying and Empowering Transformers for Large-Graph Representations"). The
global branch sees no edges and is linear in the nodes; the local branch is a GCN; their weighted
sum is the embedding. Choose it for large graphs with few labels, where deeper transformers overfit.
An edge costs one row of its sender a layer of the GCN.
"""

from __future__ import annotations

import jax
from flax import nnx

from gtjax.nn.config import SGFormerConfig
from gtjax.nn.dense import dense
from gtjax.nn.gcn import GCNConv
from gtjax.nn.inputs import Inputs, joined, joined_width
from gtjax.nn.linear_attention import simple_attention
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm
from gtjax.nn.stack import Stack


class GlobalLayer(nnx.Module):
    """Attention of every node to every node, averaged over the heads, beside its input."""

    def __init__(self, config: SGFormerConfig, *, rngs: nnx.Rngs):
        self.heads, width = config.heads, config.hidden
        wide = config.heads * width
        self.query, self.key, self.value = (dense(width, wide, rngs=rngs) for _ in range(3))
        self.norm = make_norm("layer", width, rngs=rngs)

    def __call__(self, x_nf: jax.Array, valid_n: jax.Array | None) -> jax.Array:
        """[nodes, hidden] to the same."""
        by_head = (x_nf.shape[0], self.heads, x_nf.shape[1])
        q, k, v = (layer(x_nf).reshape(by_head) for layer in (self.query, self.key, self.value))
        out_nf = simple_attention(q, k, v, valid_n).mean(axis=1)
        return self.norm((out_nf + x_nf) / 2, valid_n)


class SGFormer(nnx.Module):
    """A global and a local branch, added up."""

    Config = SGFormerConfig
    reads_sparse = True

    def __init__(self, config: SGFormerConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config, self.sizes = config, sizes
        self.input = dense(joined_width(config, sizes), config.hidden, rngs=rngs)
        self.norm = make_norm("layer", config.hidden, rngs=rngs)
        self.everywhere = nnx.List(
            [GlobalLayer(config, rngs=rngs) for _ in range(config.global_layers)]
        )

        def make(inputs: int, outputs: int) -> GCNConv:
            return GCNConv(inputs, outputs, rngs=rngs)

        self.stack = Stack(config, sizes, make, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        config, noise, valid_n = self.config, inputs.noise, inputs.valid_n
        x_nf = noise.drop(joined(config, self.sizes, inputs), config.input_dropout)
        x_nf = noise.drop(jax.nn.relu(self.norm(self.input(x_nf), valid_n)), config.global_dropout)
        for number, layer in enumerate(self.everywhere):
            x_nf = noise.drop(layer(x_nf, valid_n), config.global_dropout)
            inputs.see(f"global.{number}", x_nf)
        local_nf = self.stack(inputs, neighbours, lambda conv, x_nf, near: conv(x_nf, near))
        return config.graph_weight * local_nf + (1 - config.graph_weight) * x_nf

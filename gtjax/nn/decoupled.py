"""`DecoupledTransformer`: a node-wise network first, then rounds of propagation by attention.

Queries and keys are computed once, from what the node-wise network made of each node, and the same
attention weights, computed once, then mix the values `layers` times, each time with a share of the
start mixed back in (as APPNP does, Gasteiger et al. 2019, with learned weights instead of fixed
ones). With attention dropout each round of training draws its own, and computes its weights. Values
are divided by the square root of the degree before and multiplied by it after, so that with even
weights a round is the symmetric propagation of Kipf and Welling (2017) and hubs do not drown the
rest. There is one set of matrices whatever the number of rounds, so it reaches far without
overfitting: choose it when labels are few. Gradients flow through the attention weights.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.block import EdgeBias
from gtjax.nn.config import DecoupledConfig
from gtjax.nn.dense import linear
from gtjax.nn.inputs import InputLayer, Inputs
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm


class DecoupledTransformer(nnx.Module):
    """Input layer, node-wise network, rounds of attention."""

    Config = DecoupledConfig
    reads_sparse = True

    def __init__(self, config: DecoupledConfig, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config = config
        self.input = InputLayer(config, sizes, rngs=rngs)
        self.norm = make_norm(config.norm, config.hidden, rngs=rngs)
        self.query_key = linear(config.hidden, 2 * config.hidden, config, rngs)
        self.bias = EdgeBias(config, sizes.edge_features, rngs=rngs)

    def __call__(self, inputs: Inputs, neighbours: Neighbours) -> jax.Array:
        """Embeddings of all nodes, [nodes, hidden]."""
        config, noise = self.config, inputs.noise
        h_nf = jax.nn.gelu(self.norm(self.input(inputs), inputs.valid_n))
        by_head = (h_nf.shape[0], config.heads, config.hidden // config.heads)
        root_n1 = jnp.sqrt(jnp.maximum(neighbours.degree_n, 1.0))[:, None]
        start_nhd = (h_nf / root_n1).reshape(by_head)
        query_key = jnp.split(self.query_key(h_nf).astype(config.attention_dtype), 2, axis=1)
        q_nhd, k_nhd = (x.reshape(by_head) for x in query_key)
        bias_eh = self.bias(inputs.edge_x_ef)
        if config.attention_dropout and not noise.quiet:
            # One draw for all rounds is cheaper, but cost Cora three points of accuracy.
            value_nhd = start_nhd
            for _ in range(config.layers):
                dropout = noise.edges(config.attention_dropout)
                values = value_nhd.astype(config.attention_dtype)
                mixed_nhd = neighbours.attend(q_nhd, k_nhd, values, bias_eh, dropout=dropout)
                value_nhd = (1 - config.restart) * mixed_nhd + config.restart * start_nhd
        else:
            value_nhd = neighbours.propagate(
                q_nhd, k_nhd, start_nhd, bias_eh, rounds=config.layers, restart=config.restart
            )
        inputs.see("rounds", value_nhd)
        return value_nhd.reshape(h_nf.shape[0], config.hidden) * root_n1

"""`GraphTransformer`: node features in, logits and embeddings out.

Attention is sparse, over the edges of the graph (Dwivedi and Bresson 2021, Shi et al. 2021), with
an optional global branch. The model receives `attend` as an argument and names no device.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.block import Attend, Block, Watch, linear
from gtjax.nn.config import ModelConfig
from gtjax.nn.labels import LabelEmbedding
from gtjax.nn.noise import Noise
from gtjax.nn.norm import make_norm


class Inputs(NamedTuple):
    """What the model sees of a graph. Edge features are in the order of the edges of `attend`."""

    x_nf: jax.Array
    positional_np: jax.Array | None = None
    edge_x_ef: jax.Array | None = None
    shown_labels_n: jax.Array | None = None  # -1 where the label is not shown
    valid_n: jax.Array | None = None  # False where the node is padding
    node_ids_n: jax.Array | None = None  # numbers in the whole graph, for dropout


class Outputs(NamedTuple):
    """Logits of every node, and what the last layer computed them from."""

    logits_nc: jax.Array
    embeddings_nf: jax.Array


class GraphTransformer(nnx.Module):
    """Input layer, blocks of attention and feed-forward, output layer."""

    def __init__(
        self,
        config: ModelConfig,
        num_features: int,
        num_classes: int,
        num_edge_features: int = 0,
        *,
        rngs: nnx.Rngs,
    ):
        self.config = config
        self.input = linear(max(num_features, 1), config.hidden, config, rngs)
        self.positional = (
            linear(config.positional_size, config.hidden, config, rngs)
            if config.positional != "none"
            else None
        )
        self.labels = (
            LabelEmbedding(num_classes, config.hidden, rngs=rngs) if config.label_input else None
        )
        self.blocks = nnx.List(
            [Block(config, num_edge_features, rngs=rngs) for _ in range(config.layers)]
        )
        self.output_norm = make_norm(config.norm, config.hidden, rngs=rngs)
        self.output = linear(config.hidden, num_classes, config, rngs)

    def __call__(
        self,
        inputs: Inputs,
        attend: Attend,
        *,
        key: jax.Array | None = None,
        watch: Watch | None = None,
    ) -> Outputs:
        """Run the model: in training with a random `key`, in evaluation without."""
        noise = Noise(key, inputs.node_ids_n)
        watch = watch or (lambda name, value: None)
        x_nf = inputs.x_nf.astype(jnp.float32)
        if not x_nf.shape[1]:  # a graph without features: every node looks the same
            x_nf = jnp.ones((x_nf.shape[0], 1), jnp.float32)
        h_nf = self.input(noise.drop(x_nf, self.config.input_dropout))
        if self.positional is not None:
            if inputs.positional_np is None:
                raise ValueError("this model was made for positional encodings; none were given")
            h_nf += self.positional(inputs.positional_np)
        if self.labels is not None:
            if inputs.shown_labels_n is None:
                raise ValueError("this model was made for labels as input; none were given")
            h_nf += self.labels(inputs.shown_labels_n)
        h_nf = noise.drop(h_nf, self.config.dropout)
        watch("input", h_nf)
        for number, block in enumerate(self.blocks):
            h_nf = block(
                h_nf,
                inputs.edge_x_ef,
                inputs.valid_n,
                attend,
                noise,
                lambda name, value, number=number: watch(f"blocks.{number}.{name}", value),
            )
        embeddings_nf = self.output_norm(h_nf, inputs.valid_n)
        logits_nc = self.output(noise.drop(embeddings_nf, self.config.dropout))
        watch("output", logits_nc)
        return Outputs(logits_nc, embeddings_nf)

"""What every model reads and gives back, and the layer that reads it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.block import Watch, linear
from gtjax.nn.config import ModelConfig
from gtjax.nn.labels import LabelEmbedding
from gtjax.nn.noise import Noise


class Inputs(NamedTuple):
    """What the model sees of a graph. Edge features are in the order of the edges of `attend`."""

    x_nf: jax.Array
    positional_np: jax.Array | None = None
    edge_x_ef: jax.Array | None = None
    shown_labels_n: jax.Array | None = None  # -1 where the label is not shown
    valid_n: jax.Array | None = None  # False where the node is padding
    degree_n: jax.Array | None = None  # edges that arrive at each node, as float
    node_ids_n: jax.Array | None = None  # numbers in the whole graph, for dropout


class Outputs(NamedTuple):
    """Logits of every node, and what the last layer computed them from."""

    logits_nc: jax.Array
    embeddings_nf: jax.Array


class InputLayer(nnx.Module):
    """Features, positions and shown labels, each by a matrix of its own, added up."""

    def __init__(self, config: ModelConfig, num_features: int, num_classes: int, *, rngs: nnx.Rngs):
        self.config = config
        self.features = linear(max(num_features, 1), config.hidden, config, rngs)
        self.positional = (
            linear(config.positional_size, config.hidden, config, rngs)
            if config.positional != "none"
            else None
        )
        self.labels = (
            LabelEmbedding(num_classes, config.hidden, rngs=rngs) if config.label_input else None
        )

    def __call__(self, inputs: Inputs, noise: Noise, watch: Watch) -> jax.Array:
        """One vector per node."""
        x_nf = inputs.x_nf.astype(jnp.float32)
        if not x_nf.shape[1]:  # a graph without features: every node looks the same
            x_nf = jnp.ones((x_nf.shape[0], 1), jnp.float32)
        h_nf = self.features(noise.drop(x_nf, self.config.input_dropout))
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
        return h_nf

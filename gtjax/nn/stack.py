"""Convolutions one after the other, as the tuned baselines have them (Luo et al. 2024).

Each layer is a convolution, plus a linear layer of its input if asked for, normalisation, ReLU and
dropout; the dropout after the last is that of the task's head, which is their output layer. A
linear input layer, with dropout and without ReLU, comes first if asked for: wide features are then
narrowed before edges gather them. With jumping knowledge (Xu et al. 2018) the embedding is made of
the outputs of all layers: choose "concat" for tasks of whole graphs, where it is the readout of
GIN. What the convolution is is the model's business, and all that differs between models of this
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import StackConfig
from gtjax.nn.dense import dense
from gtjax.nn.inputs import Inputs, joined, joined_width
from gtjax.nn.models import Sizes
from gtjax.nn.neighbours import Neighbours
from gtjax.nn.norm import make_norm


class Layer(nnx.Module):
    """A convolution and what surrounds it."""

    def __init__(self, conv: nnx.Module, inputs: int, config: StackConfig, *, rngs: nnx.Rngs):
        self.conv = conv
        width = config.hidden
        self.residual = dense(inputs, width, rngs=rngs) if config.residual else None
        self.norm = make_norm(config.norm, width, rngs=rngs)


class Stack(nnx.Module):
    """All layers of a model; `make(inputs, outputs)` gives a convolution."""

    def __init__(
        self,
        config: StackConfig,
        sizes: Sizes,
        make: Callable[[int, int], nnx.Module],
        *,
        rngs: nnx.Rngs,
    ):
        self.config, self.sizes = config, sizes
        width = joined_width(config, sizes)
        self.input = dense(width, config.hidden, rngs=rngs) if config.input_layer else None
        widths = [width if self.input is None else config.hidden, *[config.hidden] * config.layers]
        self.layers = nnx.List(
            [
                Layer(make(inputs, outputs), inputs, config, rngs=rngs)
                for inputs, outputs in pairwise(widths)
            ]
        )

    def __call__(
        self,
        inputs: Inputs,
        neighbours: Neighbours,
        run: Callable[..., jax.Array],
    ) -> jax.Array:
        """Embeddings of all nodes, where `run(conv, x_nf, neighbours)` calls a convolution.

        One that `takes_residual` is given the residual layer too, if no branch is ever dropped, and
        adds what it makes. Of a sampled batch, each layer computes the rows that later ones read,
        and no others.
        """
        config, noise = self.config, inputs.noise
        outputs: list[jax.Array] = []
        h_nf: Any = noise.drop(joined(config, self.sizes, inputs), config.input_dropout)
        if self.input is not None:
            h_nf = noise.drop(self.input(h_nf), config.dropout)
            inputs.see("input", h_nf)
        for number, layer in enumerate(self.layers):
            near = neighbours.last(len(self.layers) - number)
            if number:
                h_nf = noise.drop(h_nf, config.dropout)
            takes = not config.drop_layers and getattr(layer.conv, "takes_residual", False)
            given = [layer.residual] if takes else []
            conv_nf = run(layer.conv, h_nf, near, *given)
            inputs.see(f"layers.{number}.conv", conv_nf)
            if layer.residual is not None and not takes:
                depth = (number + 1) / len(self.layers)
                conv_nf = noise.drop_branch(conv_nf, depth * config.drop_layers)
                conv_nf += layer.residual(near.own(h_nf))
            noise.keep(near.own)
            h_nf = jax.nn.relu(layer.norm(conv_nf, near.own(inputs.valid_n)))
            outputs = [*map(near.own, outputs), h_nf]
        return JUMPS[config.jumping](outputs)


JUMPS: dict[str, Callable[[list[jax.Array]], jax.Array]] = {
    "last": lambda outputs: outputs[-1],
    "concat": lambda outputs: jnp.concatenate(outputs, axis=1),
    "sum": lambda outputs: reduce(jnp.add, outputs),
    "max": lambda outputs: reduce(jnp.maximum, outputs),
}

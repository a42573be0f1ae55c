"""What every model reads: the arrays of a batch, its randomness, and who watches."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import setting_of
from gtjax.nn.dense import linear
from gtjax.nn.labels import LabelEmbedding
from gtjax.nn.models import Sizes
from gtjax.nn.noise import Noise
from gtjax.nn.sparse import SparseRows


class Watch(Protocol):
    """Sees every activation under its name, to say where a NaN came from."""

    def __call__(self, name: str, value: jax.Array) -> None:
        """Look at `value`."""
        ...


class Inputs(NamedTuple):
    """What the model sees of a graph, a row a node; edge features are in the neighbours' order.

    Randomness, the one who watches and the phase come within the step (`live`): elsewhere, in a
    batch or as an argument of a compiled function, they are None.

    `x_nf` is an array, but for a model that says `reads_sparse = True`: it takes `features` or
    `joined` of the inputs through layers of `gtjax.nn.dense`, and finds `SparseRows` where most
    features are zero.
    """

    x_nf: jax.Array
    positional_np: jax.Array | None = None
    edge_x_ef: jax.Array | None = None
    shown_labels_n: jax.Array | None = None  # -1 where the label is not shown
    valid_n: jax.Array | None = None  # False where the node is padding
    degree_n: jax.Array | None = None  # edges that arrive at each node, as float
    node_ids_n: jax.Array | None = None  # numbers in the whole graph, for dropout
    asked: Any = None  # of the head, by the task: such as pairs of nodes
    randomness: Noise | None = None
    watch: Watch | None = None
    phase: int | None = None  # of training, for models that have `phase_steps`; None: the last

    def live(self, key: jax.Array | None, watch: Watch | None = None) -> Inputs:
        """The same for one call of a model: in training with a random `key`."""
        return self._replace(randomness=Noise(key, self.node_ids_n), watch=watch)

    @property
    def noise(self) -> Noise:
        """Where randomness comes from: quiet in evaluation."""
        return Noise(None) if self.randomness is None else self.randomness

    def see(self, name: str, value: jax.Array) -> None:
        """Show an activation to the one who watches, if there is one."""
        if self.watch is not None:
            self.watch(name, value)


class InputLayer(nnx.Module):
    """Features, positions and shown labels, each by a matrix of its own, added up."""

    def __init__(self, config: Any, sizes: Sizes, *, rngs: nnx.Rngs):
        self.config = config
        self.features = linear(max(sizes.features, 1), config.hidden, config, rngs)
        self.positional = (
            linear(sizes.positional, config.hidden, config, rngs)
            if config.positional != "none"
            else None
        )
        self.labels = (
            LabelEmbedding(sizes.classes, config.hidden, rngs=rngs) if config.label_input else None
        )

    def __call__(self, inputs: Inputs) -> jax.Array:
        """One vector per node."""
        noise = inputs.noise
        h_nf = self.features(noise.drop(features(inputs), self.config.input_dropout))
        if self.positional is not None:
            h_nf += self.positional(positions(inputs))
        if self.labels is not None:
            h_nf += self.labels(shown_labels(inputs))
        h_nf = noise.drop(h_nf, self.config.dropout)
        inputs.see("input", h_nf)
        return h_nf


def joined_width(config: Any, sizes: Sizes) -> int:
    """Columns of `joined`."""
    labels = sizes.classes if setting_of(config, "label_input") else 0
    return max(sizes.features, 1) + sizes.positional + labels


def joined(config: Any, sizes: Sizes, inputs: Inputs) -> jax.Array | SparseRows:
    """Features, positions and shown labels, one beside the other: for models without a layer."""
    first, columns = features(inputs), []
    if sizes.positional:
        columns.append(positions(inputs))
    if setting_of(config, "label_input"):
        shown_n = shown_labels(inputs)
        if shown_n.ndim == 1:
            columns.append(jax.nn.one_hot(shown_n, sizes.classes))
        else:
            columns.append(jnp.where(shown_n >= 0, 2.0 * shown_n - 1.0, 0.0))
    if isinstance(first, SparseRows):
        return first.beside(columns)
    return jnp.concatenate([first, *columns], axis=1) if columns else first


def features(inputs: Inputs) -> jax.Array | SparseRows:
    """The features as float32; a column of ones where there are none."""
    if isinstance(inputs.x_nf, SparseRows):
        return inputs.x_nf
    x_nf = inputs.x_nf.astype(jnp.float32)
    if not x_nf.shape[1]:  # a graph without features: every node looks the same
        x_nf = jnp.ones((x_nf.shape[0], 1), jnp.float32)
    return x_nf


def positions(inputs: Inputs) -> jax.Array:
    """The positional encoding of a model that was made for one."""
    if inputs.positional_np is None:
        raise ValueError("this model was made for positional encodings; none were given")
    return inputs.positional_np


def shown_labels(inputs: Inputs) -> jax.Array:
    """The labels that a model sees that was made for them."""
    if inputs.shown_labels_n is None:
        raise ValueError("this model was made for labels as input; none were given")
    return inputs.shown_labels_n

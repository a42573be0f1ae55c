"""Known training labels as input: predict the hidden ones from those that are not.

After UniMP (Shi et al. 2021, "Masked Label Prediction"). Whether a node's label is hidden is one
boolean; the input sees a label only where it is False and the loss counts a node only where it is
True. A node therefore never sees the label it is asked for, at training or afterwards.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.noise import uniform_bits


def hide_labels(
    ids_n: jax.Array, labels_n: jax.Array, train_n: jax.Array, share: float, seed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Labels to show (-1 where hidden or not for training), and the mask of nodes to predict."""
    hidden_n = uniform_bits(ids_n, 1, seed)[:, 0] < jnp.uint32(share * (2.0**32 - 1))
    return show_labels(labels_n, train_n, hidden_n), train_n & hidden_n


def show_labels(labels_n: jax.Array, train_n: jax.Array, hidden_n: jax.Array) -> jax.Array:
    """Training labels where they are not hidden, and -1 elsewhere."""
    shown_n = train_n & ~hidden_n
    return jnp.where(shown_n if labels_n.ndim == 1 else shown_n[:, None], labels_n, -1)


class LabelEmbedding(nnx.Module):
    """Adds a learned vector for each label that is shown, and nothing for -1."""

    def __init__(self, num_classes: int, hidden: int, *, rngs: nnx.Rngs):
        self.vectors = nnx.Param(
            nnx.initializers.normal(hidden**-0.5)(rngs.params(), (num_classes, hidden))
        )

    def __call__(self, shown_n: jax.Array) -> jax.Array:
        """One vector per node: its class's, or the sum over its yes/no labels."""
        vectors = self.vectors[...]
        if shown_n.ndim == 2:
            sign_nt = jnp.where(shown_n >= 0, 2.0 * shown_n - 1.0, 0.0)
            return sign_nt @ vectors
        rows_nf = vectors[jnp.maximum(shown_n, 0)]
        return jnp.where((shown_n >= 0)[:, None], rows_nf, 0.0)

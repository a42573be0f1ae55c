"""Transductive sharpening: surer of nodes without labels, less sure of those that have one.

To the loss is added the mean entropy of the predictions for nodes that are not trained on, minus
that for training nodes. The first keeps decision boundaries away from nodes that the graph shows
anyway (Grandvalet and Bengio 2004); the second keeps training nodes from being fitted without end.
Choose it for node classification with one graph for training and test. It costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp

from gtjax.nn.inputs import Inputs
from gtjax.recipes.base import Pass, Recipe, Targets, needs_classes, nodes_of
from gtjax.recipes.config import RecipeConfig
from gtjax.tasks.base import Task


@dataclass(frozen=True)
class Sharpening(Recipe):
    """Entropy of unlabelled nodes minus that of labelled ones."""

    weight: float

    @classmethod
    def of(cls, config: RecipeConfig) -> Self | None:
        """Used if it has a weight."""
        return cls(config.sharpening) if config.sharpening else None

    def refusal(self, task: Task, batching: str) -> str | None:
        """For one class a node."""
        return needs_classes("sharpening", task, batching)

    def term(self, passes: Sequence[Pass], inputs: Inputs, targets: Targets) -> jax.Array:
        """The weighted difference, averaged over passes."""
        unlabelled_n = nodes_of(inputs, targets) & ~_labelled(targets)

        def difference(each: Pass) -> jax.Array:
            entropy_n = entropy(each.outputs)
            return mean(entropy_n, unlabelled_n) - mean(entropy_n, _labelled(each.targets))

        return self.weight * sum(map(difference, passes), jnp.float32(0)) / len(passes)


def entropy(logits_nc: jax.Array) -> jax.Array:
    """Of the probabilities of each row."""
    log_p_nc = jax.nn.log_softmax(logits_nc)
    return -(jnp.exp(log_p_nc) * log_p_nc).sum(axis=1)


def mean(values_n: jax.Array, counted_n: jax.Array) -> jax.Array:
    """Over the counted rows; 0 over none, as a step of clusters may have."""
    return jnp.where(counted_n, values_n, 0.0).sum() / jnp.maximum(counted_n.sum(), 1)


def _labelled(targets: Targets) -> jax.Array:
    return targets["train"] & (targets["labels"] >= 0)

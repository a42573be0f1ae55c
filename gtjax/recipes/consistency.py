"""Consistency: several forward passes of a step are to agree (GRAND, Feng et al. 2020).

Each pass has dropout of its own, of nodes, edges or values. The mean of their probabilities,
sharpened, is a target without gradient for all nodes, labelled or not; what is added to the loss
is the squared distance from it, summed over classes and averaged over nodes and passes. Choose it
where labels are few, with a model that draws: `grand` was made for it, and any with dropout works.

A step costs as much as its passes: 4 are 4 forward and 4 backward passes.
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
from gtjax.tasks.scores import masked_mean


@dataclass(frozen=True)
class Consistency(Recipe):
    """Squared distance from the sharpened mean of several passes."""

    weight: float
    count: int
    temperature: float

    @classmethod
    def of(cls, config: RecipeConfig) -> Self | None:
        """Used if it has a weight."""
        if not config.consistency:
            return None
        return cls(config.consistency, config.consistency_passes, config.consistency_temperature)

    def refusal(self, task: Task, batching: str) -> str | None:
        """For one class a node."""
        return needs_classes("consistency", task, batching)

    @property
    def passes(self) -> int:
        """As the settings say."""
        return self.count

    def term(self, passes: Sequence[Pass], inputs: Inputs, targets: Targets) -> jax.Array:
        """The weighted distance."""
        p_snc = jnp.stack([jax.nn.softmax(each.outputs) for each in passes])
        target_nc = jax.lax.stop_gradient(sharpened(p_snc.mean(axis=0), self.temperature))
        apart_n = jnp.square(p_snc - target_nc).sum(axis=2).mean(axis=0)
        return self.weight * masked_mean(apart_n, nodes_of(inputs, targets))


def sharpened(p_nc: jax.Array, temperature: float) -> jax.Array:
    """Probabilities to the power of 1 / temperature, made to add up to one again."""
    # By logarithms: powers of small probabilities of many classes would all be zero.
    return jax.nn.softmax(jnp.log(jnp.maximum(p_nc, 1e-30)) / temperature)

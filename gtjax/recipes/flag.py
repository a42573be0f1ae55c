"""FLAG: features are moved to where the loss is larger while parameters learn (Kong et al. 2020).

A step starts from features moved by at most s, at random, and goes through them so many times: each
pass gives a gradient of the parameters and moves every feature by s in the direction of its own
gradient's sign. The parameters move once, by the mean of the gradients. Nodes that are not trained
on may be moved further. Choose it for features that are real numbers, large graphs, and models
that overfit. The draw is a hash of node and step, the same under every strategy.

A step costs as many forward and backward passes as it goes through the features, 3 in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp

from gtjax.nn.inputs import Inputs
from gtjax.nn.noise import node_ids, uniform_bits
from gtjax.recipes.base import DISTANT, Gradient, Loss, Recipe, Targets, numbered_key
from gtjax.recipes.config import RecipeConfig
from gtjax.tasks.base import Task


@dataclass(frozen=True)
class Flag(Recipe):
    """Gradients at features that are moved by gradient ascent."""

    steps: int
    size: float
    unlabelled: float

    @classmethod
    def of(cls, config: RecipeConfig) -> Self | None:
        """Used if it takes steps."""
        if not config.flag_steps:
            return None
        return cls(config.flag_steps, config.flag_size, config.flag_unlabelled)

    def refusal(self, task: Task, batching: str) -> str | None:
        """For any task; nodes are told apart by whether they are trained on if they have labels."""
        if self.unlabelled == 1:
            return None
        rule = "--recipe.flag-unlabelled tells apart nodes that are trained on"
        if task.OF != "node":
            return f"{rule}; this task asks of each {task.OF}. Use 1, which treats all alike."
        if batching == "neighbours":
            return (
                f"{rule}, and --batching neighbours knows the labels of few. Use 1, which treats "
                f"all alike, or --batching full or clusters."
            )
        return None

    @property
    def reads_features(self) -> bool:
        """It moves them."""
        return True

    def gradient(self, loss: Loss, targets: Targets) -> Gradient:
        """The mean of the losses and of the gradients at each of the features."""

        def run(params: Any, inputs: Inputs, key: jax.Array) -> tuple[jax.Array, Any]:
            x_nf = inputs.x_nf.astype(jnp.float32)
            size_n1 = self._sizes(inputs, targets)

            def moved(params: Any, move_nf: jax.Array, key: jax.Array) -> jax.Array:
                return loss(params, inputs._replace(x_nf=x_nf + move_nf), key)

            def one(number: jax.Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
                move_nf, total, grads = carry
                take = jax.value_and_grad(moved, argnums=(0, 1))
                value, (more, uphill_nf) = take(params, move_nf, numbered_key(key, number))
                grads = jax.tree.map(jnp.add, grads, more)
                return move_nf + size_n1 * jnp.sign(uphill_nf), total + value, grads

            nothing = jax.tree.map(jnp.zeros_like, params)
            start = (size_n1 * self._first(inputs, key), jnp.float32(0), nothing)
            _, total, grads = jax.lax.fori_loop(0, self.steps, one, start)
            return total / self.steps, jax.tree.map(lambda g: g / self.steps, grads)

        return run

    def _sizes(self, inputs: Inputs, targets: Targets) -> jax.Array:
        """How far a pass moves the features of each node."""
        rows = len(inputs.x_nf)
        size_n1 = jnp.full((rows, 1), self.size, jnp.float32)
        if self.unlabelled != 1:
            size_n1 = jnp.where(targets["train"][:, None], size_n1, self.unlabelled * size_n1)
        return size_n1 if inputs.valid_n is None else size_n1 * inputs.valid_n[:, None]

    def _first(self, inputs: Inputs, key: jax.Array) -> jax.Array:
        """Numbers in [-1, 1), by node and channel."""
        seed = jax.random.bits(jax.random.fold_in(key, DISTANT - 1), (), jnp.uint32)
        ids_n = node_ids(inputs.x_nf, inputs.node_ids_n)
        bits_nf = uniform_bits(ids_n, inputs.x_nf.shape[1], seed)
        return bits_nf.astype(jnp.float32) * 2.0**-31 - 1

"""What a recipe is, and how a step uses several.

A recipe may ask for more forward passes of a step, add to their loss, and change how gradients are
taken. It sees outputs and targets and knows no model, no mesh and no optimiser, so it runs wherever
`Program.loss` does. All randomness comes from the key of the step.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from gtjax.core.errors import UserError
from gtjax.nn.inputs import Inputs
from gtjax.recipes.config import RecipeConfig
from gtjax.tasks.base import Task
from gtjax.tasks.node import NodeClassification

Targets = dict[str, jax.Array]
# Of parameters, inputs and a random key: the loss, and its gradient by the parameters.
Loss = Callable[[Any, Inputs, jax.Array], jax.Array]
Gradient = Callable[[Any, Inputs, jax.Array], tuple[jax.Array, Any]]

DISTANT = 1 << 30  # numbers of keys from here on are not those that layers draw from


class Pass(NamedTuple):
    """What one forward pass of a step gave."""

    outputs: Any
    targets: Targets  # what was asked in this pass: with labels as input, of the hidden ones
    loss: jax.Array


class Recipe(abc.ABC):
    """One way of training; subclasses are frozen dataclasses of plain values."""

    @classmethod
    @abc.abstractmethod
    def of(cls, config: RecipeConfig) -> Self | None:
        """The recipe with these settings; None if they do not use it."""

    def refusal(self, task: Task, batching: str) -> str | None:
        """Why it cannot be for this task or batching, if it cannot."""
        del task, batching
        return None

    @property
    def reads_features(self) -> bool:
        """Whether it computes with `Inputs.x_nf` itself, which is an array then."""
        return False

    @property
    def passes(self) -> int:
        """Forward passes that it needs to see of a step."""
        return 1

    def term(self, passes: Sequence[Pass], inputs: Inputs, targets: Targets) -> jax.Array | float:
        """What it adds to the mean of their losses; targets are all that the batch has."""
        del passes, inputs, targets
        return 0.0

    def gradient(self, loss: Loss, targets: Targets) -> Gradient | None:
        """How the gradient of the loss of a step is taken instead; None as always."""
        del loss, targets
        return None


@dataclass(frozen=True)
class Recipes:
    """The recipes of a run, in the order of their table."""

    used: tuple[Recipe, ...] = ()

    def check(self, task: Task, batching: str) -> None:
        """Refuse what a recipe cannot be used with."""
        if self.used and batching == "chunks":
            raise UserError(
                "recipes see the whole of what a step sees, and --batching chunks has a part of it "
                "at a time. Use --batching full or clusters, or leave --recipe... out."
            )
        for each in self.used:
            if reason := each.refusal(task, batching):
                raise UserError(reason)

    @property
    def reads_features(self) -> bool:
        """Whether one of them computes with the features."""
        return any(each.reads_features for each in self.used)

    def loss(
        self,
        run: Callable[[jax.Array, int], Pass],
        inputs: Inputs,
        targets: Targets,
        key: jax.Array,
    ) -> jax.Array:
        """The loss of a step, where `run(key, number)` makes a forward pass; number 0 has `key`."""
        count = max((each.passes for each in self.used), default=1)
        keys = [key, *(numbered_key(key, number) for number in range(1, count))]
        passes = [run(each, number) for number, each in enumerate(keys)]
        loss = sum(each.loss for each in passes[1:]) + passes[0].loss
        if count > 1:
            loss /= count
        for each in self.used:
            loss += each.term(passes, inputs, targets)
        return loss

    def gradient(self, loss: Loss, targets: Targets) -> Gradient:
        """The loss of a step and its gradient."""
        for each in self.used:
            if (changed := each.gradient(loss, targets)) is not None:
                return changed
        return jax.value_and_grad(loss)


def numbered_key(key: jax.Array, number: int | jax.Array) -> jax.Array:
    """A key for each of several passes of a step."""
    return jax.random.fold_in(key, DISTANT + number)


def needs_classes(name: str, task: Task, batching: str) -> str | None:
    """Refuses what is not a choice of one class a node, and steps that see no unlabelled nodes."""
    if not is_one_class(task):
        return (
            f"--recipe.{name} compares probabilities of classes of nodes: it is for --task node "
            f"with one class a node. Leave it out for this task."
        )
    if batching not in ("full", "clusters"):
        return (
            f"--recipe.{name} needs nodes without labels in every step; --batching {batching} has "
            f"those that it is asked for alone. Use --batching full or clusters."
        )
    return None


def is_one_class(task: Task) -> bool:
    """Whether a task asks for one of several classes of each node."""
    return isinstance(task, NodeClassification) and task.OF == "node" and not task.multilabel


def nodes_of(inputs: Inputs, targets: Targets) -> jax.Array:
    """Which rows are nodes, and not padding."""
    train_n = targets["train"]
    return jnp.ones_like(train_n) if inputs.valid_n is None else inputs.valid_n

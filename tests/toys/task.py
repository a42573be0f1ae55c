"""A toy task: regression of a number of every node, here that of its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.tasks.base import Task, split_masks


class Column(nnx.Module):
    """One number a node."""

    def __init__(self, width, *, rngs):
        self.linear = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, embeddings_nf, inputs):
        return self.linear(embeddings_nf)


@dataclass(frozen=True)
class Regression(Task):
    """The number of a node's class, as if it were a quantity."""

    metric: str = "r2"
    METRICS: ClassVar[tuple[str, ...]] = ("r2",)

    @classmethod
    def of(cls, graph, settings=None):
        if not graph.num_features:
            raise UserError(f"regression needs features; {graph.name} has none")
        return cls()

    @staticmethod
    def targets(graph):
        return {"value": graph.labels_n.astype(np.float32), **split_masks(graph)}

    def head(self, width, *, dropout, dtype="float32", rngs):
        return Column(width, rngs=rngs)

    def loss(self, outputs, targets, weight_n):
        error_n = jnp.square(outputs[:, 0] - targets["value"])
        return jnp.where(targets["train"], error_n, 0).sum() / targets["train"].sum()

    def metrics(self, outputs, targets, split):
        mask, value = targets[split], targets["value"]
        mean = jnp.where(mask, value, 0).sum() / mask.sum()
        wrong = jnp.where(mask, jnp.square(outputs[:, 0] - value), 0).sum()
        return {"r2": 1 - wrong / jnp.where(mask, jnp.square(value - mean), 0).sum()}

"""Regression: one or several real numbers of every node.

Targets are standardised by the mean and deviation of the training nodes, so that the loss and the
head's start do not depend on their unit; what comes out is in the unit of the targets again.
Targets that are not known (NaN) count nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph import Graph, Table
from gtjax.tasks.base import DEFAULTS, ERRORS, REGRESSION, TaskSettings, split_masks
from gtjax.tasks.labelled import Labelled, check_splits
from gtjax.tasks.own import is_own, own_function
from gtjax.tasks.scores import masked_mean

Targets = dict[str, jax.Array]


@dataclass(frozen=True)
class NodeRegression(Labelled):
    """Real numbers of every node."""

    mean: tuple[float, ...]  # of the training targets
    std: tuple[float, ...]
    metric: str = "mae"
    own_loss: str = "auto"

    METRICS: ClassVar[tuple[str, ...]] = REGRESSION
    SMALLER: ClassVar[tuple[str, ...]] = ERRORS
    ANSWERS: ClassVar[tuple[str, str]] = ("value", "values")

    @classmethod
    def of(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Self:
        """The task of a graph; refuses labels that are classes of several yes/no questions."""
        if settings.label_input:
            raise UserError("label_input shows classes; real targets cannot be shown. Leave it out")
        check_splits(graph, cls.OF)
        values_nt = _columns(graph)[graph.splits["train"]]
        std_t = np.nanstd(values_nt, axis=0)
        return cls(
            tuple(np.nanmean(values_nt, axis=0).tolist()),
            tuple(np.where(std_t > 0, std_t, 1.0).tolist()),
            "mae" if settings.metric == "auto" else settings.metric,
            settings.asked.loss,
            **cls.more(settings),
        )

    def targets(self, graph: Graph) -> dict[str, np.ndarray | Table]:
        """Targets, and who is in which split."""
        return {"values": _columns(graph), **split_masks(graph)}

    @property
    def outputs(self) -> int:
        """Number of targets."""
        return len(self.mean)

    def answers(self, outputs: Any) -> jax.Array:
        """Targets in their own unit, [nodes, targets]."""
        return outputs * jnp.array(self.std) + jnp.array(self.mean)

    def loss(self, outputs: Any, targets: Targets, weight_n: jax.Array | None = None) -> jax.Array:
        """Mean squared error of standardised targets over training nodes, or one's own loss."""
        values_nt = targets["values"]
        counted_nt = targets["train"][:, None] & ~jnp.isnan(values_nt)
        if is_own(self.own_loss):
            own = own_function(self.own_loss, "loss")
            return own(self.answers(outputs), values_nt, counted_nt)
        wanted_nt = (jnp.nan_to_num(values_nt) - jnp.array(self.mean)) / jnp.array(self.std)
        losses_nt = jnp.square(outputs - wanted_nt)
        if weight_n is not None:
            losses_nt *= weight_n[:, None]
        return jnp.where(counted_nt, losses_nt, 0.0).sum() / jnp.maximum(counted_nt.sum(), 1)

    def counted(self, targets: Targets) -> jax.Array | None:
        """Known targets of training nodes; a loss of one's own need not be a mean."""
        if is_own(self.own_loss):
            return None
        return (targets["train"][:, None] & ~jnp.isnan(targets["values"])).sum()

    def metrics(self, outputs: Any, targets: Targets, split: str) -> dict[str, jax.Array]:
        """Mean absolute and root of mean squared error, and R2: the mean over several targets."""
        values_nt = targets["values"]
        counted_nt = targets[split][:, None] & ~jnp.isnan(values_nt)
        answers_nt, values_nt = self.answers(outputs), jnp.nan_to_num(values_nt)
        error_nt = answers_nt - values_nt
        by_target = [
            (jnp.square(error_nt[:, t]), values_nt[:, t], counted_nt[:, t])
            for t in range(self.outputs)
        ]
        rmse = [jnp.sqrt(masked_mean(square, counted)) for square, _, counted in by_target]
        scores = {
            "mae": masked_mean(jnp.abs(error_nt), counted_nt),
            "rmse": jnp.stack(rmse).mean(),
            "r2": jnp.stack([_r2(*each) for each in by_target]).mean(),
        }
        if is_own(self.metric):
            own = own_function(self.metric, "metric")
            scores[self.metric] = own(answers_nt, values_nt, counted_nt)
        return scores

    def unknown(self, count: int) -> np.ndarray:
        """NaN for every target."""
        return np.full((count, self.outputs), np.nan, np.float32)

    def check_like(self, graph: Graph) -> None:
        """As many targets as were trained on."""
        found = _columns(graph).shape[1]
        if found != self.outputs:
            raise UserError(
                f"the model was trained on {self.outputs} targets; {graph.name} has {found}"
            )

    @classmethod
    def from_json(cls, known: dict[str, Any]) -> NodeRegression:
        """The task that was written."""
        return cls(**{**known, "mean": tuple(known["mean"]), "std": tuple(known["std"])})


def _columns(graph: Graph) -> np.ndarray:
    """Targets [rows, targets], NaN where unknown; classes count as numbers."""
    if graph.is_multilabel:
        raise UserError(
            f"regression needs real targets; {graph.name} has several yes/no labels. Give them as "
            f"real numbers (labels_n.astype(float)), or use classification (--task node)"
        )
    labels = graph.labels
    values = labels if graph.is_real else np.where(labels < 0, np.nan, labels).astype(np.float32)
    return values[:, None] if values.ndim == 1 else values


def _r2(square_n: jax.Array, values_n: jax.Array, counted_n: jax.Array) -> jax.Array:
    """Share of the variance that is explained."""
    mean = masked_mean(values_n, counted_n)
    return 1 - masked_mean(square_n, counted_n) / masked_mean(
        jnp.square(values_n - mean), counted_n
    )

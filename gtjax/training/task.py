"""The task a graph's labels set: its loss, its metrics, and which of them is validated.

All counts are sums over masks, so nodes outside a mask (padding among them) contribute nothing,
and nothing here cares how the nodes are spread over devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from gtjax.graph import Graph, UserError


@dataclass(frozen=True)
class Task:
    """Classification into one of several classes, or several yes/no questions (multi-label)."""

    num_classes: int
    multilabel: bool
    metric: str
    label_smoothing: float = 0.0

    @staticmethod
    def of(graph: Graph, metric: str = "auto", label_smoothing: float = 0.0) -> Task:
        """The task of a graph; refuses graphs without labels, and metrics that do not fit them."""
        missing = [name for name in ("train", "val") if not _has_labelled(graph, name)]
        if missing:
            lack = f"no labelled {' and no labelled '.join(missing)} nodes"
            raise UserError(
                f"training needs labelled train and val nodes; {graph.name} has {lack}. "
                f"Give labels and masks (Graph.with_splits), or choose another data set."
            )
        task = Task(graph.num_classes, graph.is_multilabel, metric, label_smoothing)
        if metric == "auto":
            metric = "roc_auc" if graph.is_multilabel else "accuracy"
        if metric == "roc_auc" and not task.has_roc_auc:
            raise UserError(f"roc_auc needs 2 classes or yes/no labels; found {graph.num_classes}")
        return Task(graph.num_classes, graph.is_multilabel, metric, label_smoothing)

    @property
    def has_roc_auc(self) -> bool:
        """Whether ROC-AUC is defined."""
        return self.multilabel or self.num_classes == 2

    def loss(
        self,
        logits_nc: jax.Array,
        labels_n: jax.Array,
        counted_n: jax.Array,
        weight_n: jax.Array | None = None,
    ) -> jax.Array:
        """Mean cross entropy over the counted, labelled nodes (and tasks); 0 over none.

        With weights each node's loss is multiplied by its own; the mean stays over the count.
        A step that by chance hides no label has nothing to predict, and is not an error.
        """
        smooth = self.label_smoothing
        if self.multilabel:
            counted = counted_n[:, None] & (labels_n >= 0)
            target = jnp.maximum(labels_n, 0) * (1 - smooth) + smooth / 2
            losses = optax.sigmoid_binary_cross_entropy(logits_nc, target)
        else:
            counted = counted_n & (labels_n >= 0)
            log_p_nc = jax.nn.log_softmax(logits_nc)
            picked = jnp.maximum(labels_n, 0)[:, None]
            right = jnp.take_along_axis(log_p_nc, picked, axis=1)[:, 0]
            losses = -(1 - smooth) * right - smooth * log_p_nc.mean(axis=1)
        if weight_n is not None:
            losses *= weight_n[:, None] if self.multilabel else weight_n
        return jnp.where(counted, losses, 0.0).sum() / jnp.maximum(counted.sum(), 1)

    def metrics(
        self, logits_nc: jax.Array, labels_n: jax.Array, counted_n: jax.Array
    ) -> dict[str, jax.Array]:
        """Accuracy, and ROC-AUC where it is defined, over the counted, labelled nodes."""
        counted = labels_n >= 0
        if self.multilabel:
            counted &= counted_n[:, None]
            right = (logits_nc > 0) == (labels_n > 0)
            areas = [
                roc_auc(logits_nc[:, t], labels_n[:, t] > 0, counted[:, t])
                for t in range(self.num_classes)
            ]
            # A task with one class only among the counted nodes has no area.
            return {
                "accuracy": _masked_mean(right, counted),
                "roc_auc": jnp.nanmean(jnp.stack(areas)),
            }
        counted &= counted_n
        result = {"accuracy": _masked_mean(logits_nc.argmax(axis=1) == labels_n, counted)}
        if self.has_roc_auc:
            score_n = logits_nc[:, 1] - logits_nc[:, 0]
            result["roc_auc"] = roc_auc(score_n, labels_n == 1, counted)
        return result

    def probabilities(self, logits_nc: jax.Array) -> jax.Array:
        """Of each class, or of a yes to each task."""
        return jax.nn.sigmoid(logits_nc) if self.multilabel else jax.nn.softmax(logits_nc)


def roc_auc(score_n: jax.Array, positive_n: jax.Array, counted_n: jax.Array) -> jax.Array:
    """Chance that a positive scores above a negative, ties counting half; NaN without both.

    Ranks are divided by the number of nodes before they are summed, so that float32 is enough.
    """
    score_n = jnp.where(counted_n, score_n, jnp.inf)
    ordered = jnp.sort(score_n)
    below_n = jnp.searchsorted(ordered, score_n, side="left")
    up_to_n = jnp.searchsorted(ordered, score_n, side="right")
    positive_n = positive_n & counted_n
    positives = positive_n.sum()
    negatives = counted_n.sum() - positives
    count = jnp.maximum(positives + negatives, 1)
    rank_n = (below_n + up_to_n + 1) / (2 * count)
    mean_rank = _masked_mean(rank_n, positive_n) * count
    return (mean_rank - (positives + 1) / 2) / jnp.where(negatives > 0, negatives, jnp.nan)


def _masked_mean(values: jax.Array, counted: jax.Array) -> jax.Array:
    return jnp.where(counted, values, 0.0).sum() / jnp.where(counted.any(), counted.sum(), jnp.nan)


def _has_labelled(graph: Graph, split: str) -> bool:
    return split in graph.split_n and bool((graph.labels_n[graph.split_n[split]] >= 0).any())

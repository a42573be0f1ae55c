"""Classification of nodes: into one of several classes, or by several yes/no questions.

All counts are sums over masks, so nodes outside a mask (padding among them) contribute nothing,
and nothing here cares how the nodes are spread over devices. With labels as input (Shi et al. 2021)
a step shows some training labels and asks for the others: see `gtjax/nn/labels.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gtjax.core.errors import UserError
from gtjax.graph import Graph, Table
from gtjax.nn.inputs import Inputs
from gtjax.nn.labels import hide_labels, show_labels
from gtjax.nn.noise import uniform_bits
from gtjax.tasks.base import CLASSIFICATION, DEFAULTS, LOSSES, TaskSettings, split_masks
from gtjax.tasks.labelled import Labelled, check_splits
from gtjax.tasks.own import is_own, own_function
from gtjax.tasks.scores import masked_mean, roc_auc

Targets = dict[str, jax.Array]


@dataclass(frozen=True)
class NodeClassification(Labelled):
    """Classification into one of several classes, or several yes/no questions (multi-label)."""

    num_classes: int
    multilabel: bool
    metric: str
    label_smoothing: float = 0.0
    label_input: bool = False
    hidden_labels: float = 0.5
    own_loss: str = "auto"

    METRICS: ClassVar[tuple[str, ...]] = CLASSIFICATION
    SMALLER: ClassVar[tuple[str, ...]] = LOSSES
    ANSWERS: ClassVar[tuple[str, str]] = ("probability", "probabilities")

    @classmethod
    def of(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Self:
        """The task of a graph; refuses graphs without labels, and metrics that do not fit them."""
        check_splits(graph, cls.OF)
        _check_classes(graph, cls.OF)
        metric = settings.metric
        if metric == "auto":
            metric = "roc_auc" if graph.is_multilabel else "accuracy"
        task = cls(
            graph.num_classes,
            graph.is_multilabel,
            metric,
            settings.label_smoothing,
            settings.label_input,
            settings.hidden_labels,
            settings.asked.loss,
            **cls.more(settings),
        )
        if metric == "roc_auc" and not task.has_roc_auc:
            raise UserError(f"roc_auc needs 2 classes or yes/no labels; found {graph.num_classes}")
        return task

    def targets(self, graph: Graph) -> dict[str, np.ndarray | Table]:
        """Labels, -1 where they are not known, and who is in which split."""
        return {"labels": graph.labels, **split_masks(graph)}

    @property
    def outputs(self) -> int:
        """Number of classes, or of questions."""
        return self.num_classes

    def unknown(self, count: int) -> np.ndarray:
        """-1 for every label."""
        return np.full((count, self.outputs) if self.multilabel else count, -1, np.int32)

    def check_like(self, graph: Graph) -> None:
        """As many classes, or questions, as were trained on."""
        _check_classes(graph, self.OF)
        kinds = {True: "several yes/no labels", False: "one label"}
        if graph.is_multilabel != self.multilabel:
            raise UserError(
                f"the model was trained on {kinds[self.multilabel]} a node; {graph.name} has "
                f"{kinds[graph.is_multilabel]}"
            )
        # With one label per node the graph may lack the last classes.
        fewer = graph.num_classes < self.num_classes and not self.multilabel
        if graph.num_classes != self.num_classes and not fewer:
            raise UserError(
                f"the model was trained on {self.num_classes} classes; {graph.name} has "
                f"{graph.num_classes}"
            )

    def training(self, inputs: Inputs, targets: Targets, key: jax.Array) -> tuple[Inputs, Targets]:
        """With labels as input: show some training labels, and ask for the others alone."""
        if not self.label_input:
            return super().training(inputs, targets, key)
        if inputs.shown_labels_n is not None:  # a sampled batch hides what it asks by itself
            return inputs, targets
        seed = jax.random.bits(key, (), jnp.uint32)
        shown_n, asked_n = hide_labels(
            _node_ids(inputs), targets["labels"], targets["train"], self.hidden_labels, seed
        )
        return inputs._replace(shown_labels_n=shown_n), {**targets, "train": asked_n}

    def evaluation(self, inputs: Inputs, targets: Targets) -> Inputs:
        """With labels as input: show every training label."""
        return self._shown(inputs, targets, jnp.zeros_like(targets["train"]))

    def predictions(
        self,
        run: Callable[[Inputs], tuple[jax.Array, jax.Array]],
        inputs: Inputs,
        targets: Targets,
    ) -> tuple[jax.Array, jax.Array]:
        """Outputs and embeddings of all nodes, where no node has seen its own label.

        With labels as input, training nodes are predicted in two halves, each while its labels
        are hidden; all others see every training label.
        """
        result = run(self.evaluation(inputs, targets))
        if self.label_input:
            half_n = uniform_bits(_node_ids(inputs), 1, jnp.uint32(0))[:, 0] >> 31 == 1
            for hidden_n in (half_n, ~half_n):
                part = run(self._shown(inputs, targets, hidden_n))
                own_n1 = (targets["train"] & hidden_n)[:, None]
                result = tuple(jnp.where(own_n1, a, b) for a, b in zip(part, result, strict=True))
        return result[0], result[1]

    def _shown(self, inputs: Inputs, targets: Targets, hidden_n: jax.Array) -> Inputs:
        if not self.label_input:
            return inputs
        shown_n = show_labels(targets["labels"], targets["train"], hidden_n)
        return inputs._replace(shown_labels_n=shown_n)

    def loss(self, outputs: Any, targets: Targets, weight_n: jax.Array | None = None) -> jax.Array:
        """Mean cross entropy over the labelled training nodes, or the loss of one's own."""
        if is_own(self.own_loss):
            labels_n = targets["labels"]
            counted_n = targets["train"] & _known(labels_n)
            return own_function(self.own_loss, "loss")(outputs, labels_n, counted_n)
        return self.cross_entropy(outputs, targets["labels"], targets["train"], weight_n)

    def counted(self, targets: Targets) -> jax.Array | None:
        """Labels of training nodes; a loss of one's own need not be a mean."""
        if is_own(self.own_loss):
            return None
        train_n, labels_n = targets["train"], targets["labels"]
        return ((train_n[:, None] if self.multilabel else train_n) & (labels_n >= 0)).sum()

    def metrics(self, outputs: Any, targets: Targets, split: str) -> dict[str, jax.Array]:
        """Accuracy, ROC-AUC where it is defined, and what is validated, of a split's nodes."""
        scores = self.scores(outputs, targets["labels"], targets[split])
        if self.metric == "cross_entropy":
            scores[self.metric] = self.cross_entropy(outputs, targets["labels"], targets[split])
        if is_own(self.metric):
            counted_n = targets[split] & _known(targets["labels"])
            own = own_function(self.metric, "metric")
            scores[self.metric] = own(outputs, targets["labels"], counted_n)
        return scores

    @property
    def has_roc_auc(self) -> bool:
        """Whether ROC-AUC is defined."""
        return self.multilabel or self.num_classes == 2

    def cross_entropy(
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

    def scores(
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
                "accuracy": masked_mean(right, counted),
                "roc_auc": jnp.nanmean(jnp.stack(areas)),
            }
        counted &= counted_n
        result = {"accuracy": masked_mean(logits_nc.argmax(axis=1) == labels_n, counted)}
        if self.has_roc_auc:
            score_n = logits_nc[:, 1] - logits_nc[:, 0]
            result["roc_auc"] = roc_auc(score_n, labels_n == 1, counted)
        return result

    def ensemble(self, outputs: list[Any]) -> jax.Array:
        """Outputs whose probabilities are the means of those of several models."""
        together = jnp.stack(outputs)
        if not self.multilabel:
            return jax.nn.logsumexp(jax.nn.log_softmax(together), axis=0) - jnp.log(len(outputs))
        yes, no = (jax.nn.logsumexp(jax.nn.log_sigmoid(s * together), axis=0) for s in (1, -1))
        return yes - no

    def answers(self, outputs: Any) -> jax.Array:
        """The probability of each class, or of a yes to each question."""
        return jax.nn.sigmoid(outputs) if self.multilabel else jax.nn.softmax(outputs)


def _node_ids(inputs: Inputs) -> jax.Array:
    if inputs.node_ids_n is None:
        raise ValueError("hiding labels draws by node id; the batch has no node_ids_n")
    return inputs.node_ids_n


def _known(labels_n: jax.Array) -> jax.Array:
    return labels_n >= 0 if labels_n.ndim == 1 else (labels_n >= 0).any(axis=1)


def _check_classes(graph: Graph, what: str) -> None:
    if graph.is_real:
        raise UserError(
            f"classification needs classes (integers); the labels of {graph.name} are real "
            f"numbers. Use --task {what}_regression, or round them to classes."
        )

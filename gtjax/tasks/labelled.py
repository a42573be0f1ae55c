"""What tasks have in common that ask for labels: of nodes, or of graphs where there are many."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import jax
import numpy as np
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.tasks.base import Task, TaskSettings
from gtjax.tasks.heads import LinearHead


class Labelled(Task):
    """Every node, or graph, has a label of one kind, or is to get one."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Columns of what the head gives."""

    @abc.abstractmethod
    def unknown(self, count: int) -> np.ndarray:
        """Labels of so many rows of which nothing is known."""

    @abc.abstractmethod
    def check_like(self, graph: Graph) -> None:
        """Refuse labels that are not of the kind that was trained on."""

    @classmethod
    def more(cls, settings: TaskSettings) -> dict[str, Any]:
        """What a task that is derived from another takes of the settings beside it."""
        del settings
        return {}

    def head(
        self, width: int, *, dropout: float, dtype: str = "float32", rngs: nnx.Rngs
    ) -> nnx.Module:
        """Dropout and a dense layer."""
        return LinearHead(width, self.outputs, dropout, dtype, rngs=rngs)

    def validation_loss(self, outputs: Any, targets: dict[str, jax.Array]) -> jax.Array:
        """The same loss, of the rows of val in the place of those of train."""
        return self.loss(outputs, {**targets, "train": targets["val"]}, None)

    def fitted(self, graph: Graph) -> Graph:
        """The graph with labels of the kind that was trained, known or not."""
        if graph.labelled.any():
            self.check_like(graph)
            return graph
        labels = self.unknown(len(graph.labels))
        if graph.graphs is None:
            return dataclasses.replace(graph, labels_n=labels)
        return dataclasses.replace(graph, graphs=dataclasses.replace(graph.graphs, labels_g=labels))


def check_splits(graph: Graph, what: str) -> None:
    """Refuse labels of something else than `what`, and a graph without any to train and validate.

    `what` is "node" or "graph".
    """
    if what == "node" and graph.graphs is not None:
        raise UserError(
            f"{graph.name} has labels of graphs, not of nodes: use --task graph or "
            f"graph_regression, or leave --task out"
        )
    empty = [
        name
        for name in ("train", "val")
        if name not in graph.splits or not graph.labelled[graph.splits[name]].any()
    ]
    if empty:
        lack = f"no labelled {' and no labelled '.join(empty)} {what}s"
        raise UserError(
            f"training needs labelled train and val {what}s; {graph.name} has {lack}. Give labels "
            f"and masks (Graph.with_splits, Graph.with_random_splits, --split random:60/20/20), or "
            f"choose another data set."
        )

"""A graph to predict on may number classes and features otherwise; by name they are the same."""

from __future__ import annotations

import dataclasses

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.graph import Graph, required_graph
from gtjax.graph.splits import is_known


def with_classes(graph: Graph, trained: tuple[str, ...]) -> Graph:
    """The graph with its classes, or questions, numbered as those that a run was trained on.

    Where either has no names, numbers stand as they are. Labels of a class that the run has never
    seen are left out, which is said: nothing it predicts for them could be right.
    """
    own = graph.names.classes
    if not trained or not own or own == trained:
        return graph
    known = [name for name in own if name in trained]
    if not known:
        raise UserError(
            f"the run was trained on the classes {_shown(trained)}; {graph.name} has others: "
            f"{_shown(own)}. Give a graph with the same classes, or without labels."
        )
    if len(known) < len(own):
        unseen = [name for name in own if name not in trained]
        say(f"labels of {graph.name} that the run has never seen are left out: {_shown(unseen)}")
    graph = required_graph(graph, "predict")  # other labels than those that are stored
    labels = _renumbered(graph, own, trained)
    names = dataclasses.replace(graph.names, classes=trained)
    splits = {name: mask & is_known(labels) for name, mask in graph.splits.items()}
    if graph.graphs is None:
        return dataclasses.replace(graph, labels_n=labels, split_n=splits, names=names)
    many = dataclasses.replace(graph.graphs, labels_g=labels, split_g=splits)
    return dataclasses.replace(graph, graphs=many, names=names)


def with_features(graph: Graph, trained: tuple[str, ...]) -> Graph:
    """The graph with its features in the order of those that a run was trained on."""
    own = graph.names.features
    if not trained or not own or own == trained:
        return graph
    if sorted(own) != sorted(trained):
        missing = [name for name in trained if name not in own]
        raise UserError(
            f"the run was trained on other features than {graph.name} has: {_shown(missing)} "
            f"missing. Name the columns as in training, or leave those out that were not there."
        )
    graph = required_graph(graph, "predict")
    order_f = [own.index(name) for name in trained]
    names = dataclasses.replace(graph.names, features=trained)
    return dataclasses.replace(graph, x_nf=graph.x_nf[:, order_f], names=names)


def _renumbered(graph: Graph, own: tuple[str, ...], trained: tuple[str, ...]) -> np.ndarray:
    labels = graph.labels
    if labels.ndim == 2:  # a column a question, or a target
        empty = np.nan if graph.is_real else -1
        result = np.full((len(labels), len(trained)), empty, labels.dtype)
        for column, name in enumerate(own):
            if name in trained:
                result[:, trained.index(name)] = labels[:, column]
        return result
    if graph.is_real:
        return labels
    # The last place is for -1, which is no class.
    number_of = [trained.index(name) if name in trained else -1 for name in own]
    unnamed = [-1] * (graph.num_classes - len(own))
    return np.array([*number_of, *unnamed, -1], np.int32)[labels]


def _shown(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:9]) + (", ..." if len(names) > 9 else "")

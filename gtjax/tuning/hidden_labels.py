"""The graph that trials see: without the labels of test nodes, and without knowing who they are."""

from __future__ import annotations

import dataclasses

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph import Graph


def without_test(graph: Graph) -> Graph:
    """The same graph with labels of train and val nodes alone, and no test nodes.

    Whatever is chosen on it cannot depend on a test label: there is none.
    """
    if graph.graphs is not None or graph.links is not None:
        raise UserError(
            "gtjax tune chooses models for labels of nodes; this graph has labels of "
            f"{'graphs' if graph.graphs is not None else 'links'}. Use gtjax train."
        )
    missing = [name for name in ("train", "val") if name not in graph.split_n]
    if missing:
        raise UserError(
            f"tuning trains on train nodes and chooses by val nodes; {graph.name} has no "
            f"{' and no '.join(missing)} mask. Give --split random:60/20/20, or with_random_splits."
        )
    seen_n = graph.split_n["train"] | graph.split_n["val"]
    labels_n = np.array(graph.labels_n)
    labels_n[~seen_n] = np.nan if graph.is_real else -1
    split_n = {name: graph.split_n[name] for name in ("train", "val")}
    hidden = dataclasses.replace(graph, labels_n=labels_n, split_n=split_n)
    if hidden.num_classes < graph.num_classes:  # the last class has test nodes alone
        names = tuple(str(number) for number in range(graph.num_classes))
        hidden = dataclasses.replace(hidden, names=dataclasses.replace(graph.names, classes=names))
    return hidden

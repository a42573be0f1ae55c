"""What decides which models and settings are worth trying on a graph; measured, never by its name.

Homophily is how much more often an edge joins nodes of one class than chance would have it
(adjusted for the sizes of classes; Platonov et al. 2023), over edges between training nodes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from gtjax.graph import Graph

FEW_EDGES = 30  # between training nodes, below which homophily is not known
FEW_LABELS = 0.15  # share of nodes to train on, below which they are few
LARGE = 3e7  # nodes and edges times width, above which a step takes long on one core


@dataclass(frozen=True)
class Traits:
    """Of a graph as trials see it."""

    nodes: int
    edges: int
    features: int
    classes: int  # 0 for real targets
    labelled: float  # share of nodes that are trained on
    homophily: float | None  # of training labels: 1 is perfect, 0 is chance; None if not known
    words: bool  # features are non-negative, and mostly zero
    edge_features: int = 0

    @staticmethod
    def of(graph: Graph) -> Traits:
        """Of training labels, features and edges alone."""
        train_n = graph.split_n["train"] & graph.labelled
        return Traits(
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            features=graph.num_features,
            classes=0 if graph.is_real else graph.num_classes,
            labelled=float(train_n.mean()),
            homophily=_homophily(graph, train_n),
            words=_words(graph.x_nf),
            edge_features=graph.num_edge_features,
        )

    @property
    def few_labels(self) -> bool:
        """Whether what is not labelled has to help."""
        return self.labelled < FEW_LABELS

    @property
    def heterophilous(self) -> bool:
        """Whether neighbours are known to be of other classes as often as chance has it."""
        return self.homophily is not None and self.homophily < 0.3

    @property
    def size(self) -> float:
        """Numbers that a layer of usual width reads and writes, about."""
        return 64.0 * (self.nodes + self.edges)

    @property
    def text(self) -> str:
        """A line for people."""
        homophily = "not known" if self.homophily is None else f"{self.homophily:.2f}"
        return (
            f"{self.nodes:,} nodes, {self.edges:,} edges, {self.features} features"
            f"{' (words)' if self.words else ''}; {100 * self.labelled:.1f} % of the nodes to "
            f"train on, homophily of their labels {homophily}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return dataclasses.asdict(self)


def _homophily(graph: Graph, train_n: np.ndarray) -> float | None:
    if graph.is_real or graph.is_multilabel:
        return None
    both_e = train_n[graph.senders_e] & train_n[graph.receivers_e]
    both_e &= graph.senders_e != graph.receivers_e
    if both_e.sum() < FEW_EDGES:
        return None
    ends = [graph.labels_n[ends_e[both_e]] for ends_e in (graph.senders_e, graph.receivers_e)]
    same = float((ends[0] == ends[1]).mean())
    share_c = np.bincount(np.concatenate(ends), minlength=graph.num_classes) / (2 * len(ends[0]))
    chance = float((share_c**2).sum())
    return (same - chance) / max(1 - chance, 1e-9)


def _words(x_nf: np.ndarray) -> bool:
    rows = x_nf[:: max(1, len(x_nf) // 1000)]
    return bool(rows.size and (rows >= 0).all() and (rows != 0).mean() < 0.5)

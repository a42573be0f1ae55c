"""What a run has to know of its graph once the graph itself is on the devices.

In a run of several processes only the first reads the graph; the others, and also the first once
the parts are written, know these facts alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from gtjax.graph import Graph, StoredGraph, statistics


@dataclass(frozen=True)
class GraphFacts:
    """Sizes, name and hash of a graph, and what its report shows."""

    name: str
    fingerprint: str
    text: str
    num_nodes: int
    num_features: int
    num_edge_features: int
    num_classes: int
    is_multilabel: bool
    figures: dict[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    scaling: dict[str, Any] | None = None  # of the features, as it was fitted (`Scaling.to_json`)

    @staticmethod
    def of(graph: Graph | StoredGraph) -> GraphFacts:
        """The facts of a graph; its figures take a sort of the edges, but of a stored one."""
        return GraphFacts(
            name=graph.name,
            fingerprint=graph.fingerprint,
            text=str(graph),
            num_nodes=graph.num_nodes,
            num_features=graph.num_features,
            num_edge_features=graph.num_edge_features,
            num_classes=graph.num_classes,
            is_multilabel=graph.is_multilabel,
            figures=statistics(graph),
            class_names=graph.names.classes,
            feature_names=graph.names.features,
        )

    def to_json(self) -> dict[str, Any]:
        """For the run's folder, and for other processes."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(known: dict[str, Any]) -> GraphFacts:
        """The facts that were written."""
        names = {key: tuple(known.get(key, ())) for key in ("class_names", "feature_names")}
        fields: dict[str, Any] = {**known, **names}
        return GraphFacts(**fields)

"""Tasks of whole graphs: many graphs side by side, the nodes of each pooled to one row.

No edge leads from one graph to another, so with whole graphs on each device (the partitioner
`graphs`) nothing travels along edges; only pooled rows are added up. `--batching graphs` lets a
step see some of the graphs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
import numpy as np
from flax import nnx

from gtjax.core.errors import UserError
from gtjax.graph import Graph, ManyGraphs, Table
from gtjax.nn.inputs import Inputs
from gtjax.tasks.base import DEFAULTS, TaskSettings
from gtjax.tasks.heads import PooledHead
from gtjax.tasks.labelled import Labelled
from gtjax.tasks.node import NodeClassification
from gtjax.tasks.regression import NodeRegression

Targets = dict[str, jax.Array]


class Membership(NamedTuple):
    """Which graph every node belongs to."""

    graph_n: jax.Array  # number of the graph plus 1; 0 for rows of padding
    size_g: jax.Array  # nodes of each graph


class OfGraphs(Labelled):
    """What is asked of nodes elsewhere is asked of graphs; stands before the task of nodes."""

    OF: ClassVar[Literal["node", "pair", "graph"]] = "graph"
    pool: str

    @classmethod
    def of(cls, graph: Graph, settings: TaskSettings = DEFAULTS) -> Self:
        """The task of many graphs."""
        if graph.graphs is None:
            raise UserError(
                f"tasks of whole graphs need many graphs; {graph.name} is one. Join yours with "
                f"gtjax.many_graphs(graphs, labels)"
            )
        if settings.label_input:
            raise UserError(
                "label_input shows labels of nodes; here graphs have them: leave it out"
            )
        return super().of(graph, settings)

    @classmethod
    def more(cls, settings: TaskSettings) -> dict[str, Any]:
        """How nodes become one row."""
        return {"pool": settings.asked.pool}

    def targets(self, graph: Graph) -> dict[str, np.ndarray | Table]:
        """Of the graphs, on every device; and which graph every node belongs to."""
        many = graph.graphs
        assert many is not None
        known = {name: Table(np.asarray(rows)) for name, rows in super().targets(graph).items()}
        sizes_g = np.bincount(many.ids_n, minlength=many.count).astype(np.float32)
        return {**known, "sizes": Table(sizes_g), "graph": many.ids_n + 1}

    def head(
        self, width: int, *, dropout: float, dtype: str = "float32", rngs: nnx.Rngs
    ) -> PooledHead:
        """Pooling, dropout and a dense layer."""
        return PooledHead(self.pool, width, self.outputs, dropout, dtype, rngs=rngs)

    def evaluation(self, inputs: Inputs, targets: Targets) -> Inputs:
        """Tell the head which node is whose."""
        return inputs._replace(asked=Membership(targets["graph"], targets["sizes"]))

    def fitted(self, graph: Graph) -> Graph:
        """Also one graph alone, which is then a set of one."""
        if graph.graphs is None:
            alone = ManyGraphs(np.zeros(graph.num_nodes, np.int32), self.unknown(1))
            graph = dataclasses.replace(graph, graphs=alone)
        return super().fitted(graph)


@dataclass(frozen=True)
class GraphClassification(OfGraphs, NodeClassification):
    """One of several classes, or several yes/no questions, of every graph."""

    pool: str = "mean"


@dataclass(frozen=True)
class GraphRegression(OfGraphs, NodeRegression):
    """Real numbers of every graph."""

    pool: str = "mean"

"""The whole graph in every step, chunk by chunk from disk: exact, and memory is what one chooses.

For graphs whose step does not fit into memory. A step goes layer by layer over chunks of nodes, with
activations in files where they do not fit (`gtjax/chunks`); gradients are those of `full`. It costs
reading and writing every activation once or twice a step: choose it where nothing else fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.batching.base import Batches, Whole
from gtjax.batching.config import BatchingSettings
from gtjax.batching.features import Scaling
from gtjax.batching.prepare import prepare_graph
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import Graph, Table
from gtjax.graph.csr import CSR
from gtjax.graph.positional import encode
from gtjax.sharding.mesh import Spread
from gtjax.strategies import Refusal


@dataclass(frozen=True, eq=False)
class ChunkedGraph:
    """A graph that is read chunk by chunk: in memory, or stored.

    Nodes stand in the graph's own order.
    """

    x_nf: Any  # rows by `x_nf[stretch or numbers]`
    scale: Scaling
    by_receiver: CSR
    by_sender: CSR
    edge_x_ef: Any  # by edge id, or None
    positional_np: np.ndarray | None
    targets: dict[str, np.ndarray]  # of the task, a row a node
    memory: float | None = None  # GiB that a step may take; None: what is free
    scratch: Path | None = None  # folder for files of a step; None: the system's for such

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.by_receiver.offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges that messages flow along."""
        return int(self.by_receiver.offsets[-1])


def chunked_graph(
    graph: Any, settings: BatchingSettings, progress: Progress | None = None
) -> ChunkedGraph:
    """The edges that messages flow along, features and targets; nothing is placed.

    A stored graph has its edges as they were stored.
    """
    positional_np, kind = None, settings.positional
    in_memory = isinstance(graph, Graph)
    if kind != "none":
        if not in_memory:
            raise UserError(
                f"positional encodings are computed in memory, and {graph.name} is stored: use "
                f"--model.positional none"
            )
        positional_np = encode(graph, kind, settings.positional_size, progress=progress)
    edges = prepare_graph(graph, settings.prepare) if in_memory else graph
    targets = settings.targets(graph)
    for name, target in targets.items():
        if isinstance(target, Table):
            raise UserError(
                f"--batching chunks asks something of each node; this task has a table of its own "
                f"({name}). Use --batching full."
            )
    scratch = settings.batches.scratch
    return ChunkedGraph(
        graph.x_nf,
        settings.scaling or Scaling.of(graph.x_nf, settings.prepare.features),
        edges.by_receiver,
        edges.by_sender,
        edges.edge_x_ef,
        positional_np,
        {name: np.asarray(target) for name, target in targets.items()},
        settings.parallel.memory,
        None if scratch is None else Path(scratch),
    )


@dataclass(frozen=True)
class OneChunkedGraph:
    """The same for training and evaluation."""

    whole: ChunkedGraph
    partition_id: str = "one part"

    def at(self, step: int) -> ChunkedGraph:
        """The one graph."""
        return self.whole

    def changes(self, step: int) -> bool:
        """Never."""
        return False

    def span(self, step: int) -> int | None:
        """All."""
        return None

    def facts(self, step: int) -> dict[str, float]:
        """Nothing is left out."""
        return {}


@dataclass(frozen=True)
class Chunks:
    """Every step sees everything, a chunk at a time."""

    name: str = "chunks"
    sees_all: bool = True

    def refusal(self, spread: Spread, couples_nodes: str | None) -> Refusal | None:
        """On one device, with models that compute each node from its neighbours alone."""
        if spread.shape.devices > 1:
            return Refusal(
                f"--batching chunks runs on one device; there are {spread.shape.devices}",
                "use --devices 1, or --batching full",
            )
        if couples_nodes is not None:
            return Refusal(
                f"--batching chunks computes nodes a chunk at a time, and with {couples_nodes} a "
                f"node depends on all others",
                "use another setting, or --batching full",
            )
        return None

    def training(self, evaluation: Spread) -> Spread:
        """As evaluation."""
        return evaluation

    def open(
        self, graph: Any, settings: BatchingSettings, progress: Progress | None = None
    ) -> OneChunkedGraph:
        """The graph to be read chunk by chunk."""
        return OneChunkedGraph(chunked_graph(graph, settings, progress))

    def make(
        self,
        whole: Whole,
        settings: BatchingSettings,
        training: Spread,
        progress: Progress | None = None,
    ) -> Batches:
        """Nothing is placed on a device, so there is nothing to make it from."""
        raise TypeError("chunks are opened, and not made of a graph on the devices")

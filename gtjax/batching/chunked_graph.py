"""`ChunkedGraph`: a graph that is read chunk by chunk, in memory or stored; nothing is placed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.batching.config import BatchingSettings
from gtjax.batching.features import Scaling
from gtjax.batching.prepare import Prepared, prepare, prepare_graph
from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import StoredGraph, Table
from gtjax.graph.csr import CSR
from gtjax.graph.positional import encode


@dataclass(frozen=True, eq=False)
class ChunkedGraph:
    """What a step or an evaluation reads of a graph. Nodes stand in the graph's own order."""

    x_nf: Any  # rows by `x_nf[stretch or numbers]`
    scale: Any  # of rows of the features
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
    """The edges that messages flow along, features and targets, without an order of the nodes."""
    if isinstance(graph, StoredGraph):
        return in_chunks(prepare(graph, settings), settings)
    positional_np, kind = None, settings.positional
    if kind != "none":
        positional_np = encode(graph, kind, settings.positional_size, progress=progress)
    edges = prepare_graph(graph, settings.prepare)
    scale = settings.scaling or Scaling.of(graph.x_nf, settings.prepare.features)
    host = Prepared(graph, edges, scale, positional_np, None, settings.targets(graph))
    return in_chunks(host, settings)


def in_chunks(host: Prepared, settings: BatchingSettings) -> ChunkedGraph:
    """What is prepared, to be read chunk by chunk."""
    for name, target in host.targets.items():
        if isinstance(target, Table):
            raise UserError(
                f"chunks ask something of each node; this task has a table of its own ({name}). "
                f"Use --batching full, without --memory."
            )
    scratch = settings.batches.scratch
    return ChunkedGraph(
        host.graph.x_nf,
        host.scale,
        host.edges.by_receiver,
        host.edges.by_sender,
        host.edges.edge_x_ef,
        host.positional_np,
        {name: np.asarray(target) for name, target in host.targets.items()},
        settings.parallel.memory,
        None if scratch is None else Path(scratch),
    )

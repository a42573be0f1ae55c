"""`bind`: a graph on the devices, for people with a training loop of their own.

Gives the sharded inputs and targets of a graph and its neighbours, for use under plain `jax.jit`
and optax, with any strategy; nothing of `fit` is involved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gtjax.batching.config import BatchingSettings, PrepareConfig
from gtjax.batching.prepare import (
    Batch,
    check_stored,
    in_graph_order,
    place_batch,
    prepare,
    whole_layout,
)
from gtjax.core.errors import UserError, one_of
from gtjax.graph import Graph, StoredGraph, required_graph
from gtjax.nn import Inputs
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import Spread, spread
from gtjax.sharding.neighbours import BoundNeighbours
from gtjax.sharding.place import place_everywhere, place_rows
from gtjax.strategies import WIRES, Layout
from pallas_kernels.edges import EDGE_FORMS

WIDTH = 64  # of rows that are gathered, where nothing says how wide a model will be


@dataclass(frozen=True)
class Bound:
    """A graph on the devices. Rows of nodes stand in another order, with padding between them."""

    inputs: Inputs
    """What a model reads: features, edge features, `valid_n`, `degree_n`."""
    neighbours: BoundNeighbours
    """What it computes along edges; a tree of arrays, to be passed to jitted functions."""
    labels_n: jax.Array
    """Labels of the nodes, -1 where there are none, and in the rows of padding."""
    split_n: dict[str, jax.Array]
    """Masks of the nodes for "train", "val" and "test", as far as the graph has them."""
    _spread: Spread
    _layout: Layout
    _batch: Batch

    def nodes(self, rows_n: np.ndarray, fill: Any = 0) -> jax.Array:
        """Rows in the graph's order, put on the devices; `fill` in the rows of padding."""
        return place_rows(self._spread.mesh, self._layout.receivers.node_pr, rows_n, fill)

    def edges(self, rows_e: np.ndarray, fill: Any = 0) -> jax.Array:
        """Rows of the edges that messages flow along (`graph_edges`), put on the devices."""
        return place_rows(self._spread.mesh, self._layout.edge_pe, rows_e, fill)

    def everywhere(self, tree: Any) -> Any:
        """Parameters and the like, a copy on every device."""
        return place_everywhere(self._spread.mesh, tree)

    def in_graph_order(self, rows_n: Any) -> np.ndarray:
        """Rows from the devices, back in the order of the graph's nodes."""
        return in_graph_order(self._batch, np.asarray(rows_n))


def bind(
    graph: Graph,
    parallel: ParallelConfig | None = None,
    *,
    prepare_graph: PrepareConfig | None = None,
    kernel: str = "auto",
    seed: int = 0,
) -> Bound:
    """Prepare a graph, share it out over devices as `parallel` says, and place it.

    Args:
        graph: With features; labels and splits if there are any.
        parallel: Devices, strategy, partitioner and wire; by default one device.
        prepare_graph: What is done to the graph first: symmetrised, with self-loops, scaled.
        kernel: Of all ops; "auto" takes the best that runs.
        seed: Of the partition.
    """
    if isinstance(graph, StoredGraph):
        check_stored(graph, prepare_graph or PrepareConfig())
    graph = required_graph(graph, "bind")
    parallel = ParallelConfig() if parallel is None else parallel
    if not isinstance(parallel, ParallelConfig):
        rule = "bind takes a gtjax.ParallelConfig, as in ParallelConfig(devices=2)"
        raise UserError(f"{rule}; found {parallel!r}")
    settings = BatchingSettings(
        hidden=WIDTH,
        forms=EDGE_FORMS,
        targets=lambda graph: {"labels": graph.labels_n, **graph.split_n},
        seed=seed,
        parallel=parallel,
        prepare=prepare_graph or PrepareConfig(),
    )
    over = spread(parallel, ())
    host = prepare(graph, settings)
    layout, _ = whole_layout(host, settings, over)
    batch = place_batch(host, layout, over)
    assert batch.inputs.degree_n is not None
    wire = one_of(WIRES, parallel.wire, "--wire")
    neighbours = BoundNeighbours(over, batch.layout, batch.inputs.degree_n, kernel, wire)
    labels_n = place_rows(over.mesh, layout.receivers.node_pr, graph.labels_n, -1)
    split_n = {name: batch.targets[name] for name in graph.split_n}
    return Bound(batch.inputs, neighbours, labels_n, split_n, over, layout, batch)

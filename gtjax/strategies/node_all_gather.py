"""Nodes spread over devices; every device gathers the keys and values of all of them.

Moves `2 N d (P-1)/P` values forward and as many backward (a reduce-scatter of their gradients), and
holds all N keys and values on every device. Choose it for graphs that cut badly or are small, on
fast links: one large message a layer, and no more than that to set up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut, Partition
from gtjax.strategies.base import (
    NODE,
    Demand,
    FetchThenAttend,
    Layout,
    MeshShape,
    ModelShape,
    Transfer,
    attention_flops,
    attention_pass,
    part_rows,
    tables_fetched,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import number_nodes, padded
from gtjax.strategies.part_edges import edge_numbers, edges_by_part
from pallas_kernels.segment_attention import (
    Backend,
    Edges,
    build_stacked_edges,
    choose_backend,
    segment_attention,
)


@dataclass(frozen=True)
class NodeAllGather(FetchThenAttend):
    """All-gather of keys and values."""

    name: str = "node_all_gather"
    mesh_axes: tuple[str, ...] = (NODE,)
    exact: bool = True

    def check(self, model: ModelShape, mesh: MeshShape) -> None:
        """Any number of devices along the node axis."""
        only_axes(self, mesh)

    def layout(
        self,
        graph: Graph,
        partition: Partition,
        mesh: MeshShape,
        *,
        kernel: str | Backend = "auto",
        order_n: np.ndarray | None = None,
        propagates: bool = False,
    ) -> Layout:
        """In-edges of every part, with senders numbered over all parts."""
        numbering = number_nodes(partition, order_n, mesh.feature)
        lists = [part.from_senders(part.senders_e) for part in edges_by_part(graph, numbering)]
        edge_pe = edge_numbers(lists, mesh.feature)
        arrays = build_stacked_edges(
            lists,
            num_senders=numbering.parts * numbering.rows,
            num_receivers=numbering.rows,
            layouts=choose_backend(kernel).layouts,
            num_edges=edge_pe.shape[1],
        )
        return Layout(numbering, arrays, edge_pe)

    def fetch(self, arrays: Edges, *tables: jax.Array) -> tuple[jax.Array, ...]:
        """The tables of all parts together; the derivative of a gather is a reduce-scatter."""
        return tuple(_all_rows(table) for table in tables)

    def attend_fetched(
        self,
        arrays: Edges,
        q_nhd: jax.Array,
        keys: tuple[jax.Array, jax.Array],
        values: tuple[jax.Array, jax.Array],
        bias_eh: jax.Array | None,
        **options: Any,
    ) -> jax.Array:
        """Attention with keys and values as (the part's own, what `fetch` gave)."""
        return segment_attention(q_nhd, keys[1], values[1], arrays, bias_eh, **options)

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """Keys and values of all other parts, and their gradients back."""
        rows = part_rows(cut, mesh)
        others = (cut.num_parts - 1) * rows * model.hidden * model.bytes_per_value
        transfers = (
            Transfer("all-gather", NODE, others, tables_fetched(model), forward=1.0),
            Transfer("reduce-scatter", NODE, others, tables_fetched(model), forward=0.0),
        )
        flops = model.layers * attention_flops(float(cut.edges_p.max()), model.hidden)
        passes = (attention_pass(cut.edges_p, rows, cut.num_parts * rows, model),)
        # Gradients of all tables, and queries, outputs and their gradients.
        backward = 4.0 * model.hidden * rows * (2 * cut.num_parts + 4)
        return Demand(transfers, passes, flops, 2.0 * others, 2.0 * others, backward)

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those of the fullest part."""
        return padded(cut.edges_p.max(), mesh.feature)


def _all_rows(x_nhd: jax.Array) -> jax.Array:
    """The rows of all parts, gathered with all heads of a node in one row.

    A TPU pads the last axis to 128: kept by head, a width of 16 would take eight times the memory.
    """
    rows, heads, width = x_nhd.shape
    every = jax.lax.all_gather(x_nhd.reshape(rows, heads * width), NODE, tiled=True)
    return every.reshape(-1, heads, width)

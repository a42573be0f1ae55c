"""The whole graph on one device: nothing is exchanged. The yardstick for every other strategy."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from gtjax.graph import Graph, UserError
from gtjax.partition import Cut, Partition
from gtjax.strategies.base import (
    Demand,
    Layout,
    MeshShape,
    ModelShape,
    attention_flops,
    attention_pass,
    part_rows,
)
from gtjax.strategies.numbering import number_nodes, padded
from gtjax.strategies.part_edges import edge_numbers, edges_by_part
from pallas_kernels.segment_attention import (
    Backend,
    Dropout,
    Edges,
    build_stacked_edges,
    choose_backend,
    propagate,
    segment_attention,
)


@dataclass(frozen=True)
class Single:
    """Attention over all edges of a device's nodes, whose senders are all on the device."""

    name: str = "single"
    mesh_axes: tuple[str, ...] = ()
    exact: bool = True

    def check(self, model: ModelShape, mesh: MeshShape) -> None:
        """One device."""
        if mesh.devices > 1:
            raise UserError(f"single runs on one device; the mesh is {mesh}. Use another strategy.")

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
        """All edges, sorted by receiver."""
        numbering = number_nodes(partition, order_n, mesh.feature)
        (edges,) = edges_by_part(graph, numbering)
        lists = [edges.from_senders(edges.senders_e)]
        edge_pe = edge_numbers(lists, mesh.feature)
        backend = choose_backend(kernel)
        arrays = build_stacked_edges(
            lists,
            num_senders=numbering.rows,
            num_receivers=numbering.rows,
            layouts={*backend.layouts, *(backend.propagation.layouts if propagates else ())},
            num_edges=edge_pe.shape[1],
        )
        return Layout(numbering, arrays, edge_pe)

    def attend(
        self,
        arrays: Edges,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """Attention over all the edges."""
        return segment_attention(
            q_nhd, k_nhd, v_nhd, arrays, bias_eh, dropout=dropout, kernel=kernel
        )

    def propagate(
        self,
        arrays: Edges,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        rounds: int,
        restart: float,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """Rounds of propagation with weights that are computed once."""
        options = {"rounds": rounds, "restart": restart, "dropout": dropout, "kernel": kernel}
        return propagate(q_nhd, k_nhd, v_nhd, arrays, bias_eh, **options)

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """Arithmetic alone."""
        rows = part_rows(cut, mesh)
        passes = (attention_pass(cut.edges_p, rows, rows, model),)
        return Demand((), passes, model.layers * attention_flops(cut.num_edges, model.hidden), 0.0)

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """All of them."""
        return padded(cut.edges_p.max(), mesh.feature)

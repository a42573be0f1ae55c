"""Parts that train without each other: gradients are all that is exchanged, once a step.

Each part is its induced subgraph: edges between parts are left out, so attention needs no other
device, whatever the number of layers. A step moves the gradients of the parameters, `2 (P-1)/P`
times their bytes, and nothing that grows with the graph. Choose it where the network is so slow
that even the halo (`node_halo`) takes longer than the rest of the step. It is *approximate*:
gradients are not those of the whole graph, and by how much less of it nodes see is their coverage
(`coverage.py`). Draws of new parts in the course of training (`gtjax.partition.regroup`) and
weights by coverage make up for most of it. Evaluation has to follow an exact strategy.

After Grappa (Xu, Siebenbrunner and Bindschaedler 2026, "Gradient-Only Communication for Scalable
Graph Neural Network Training").
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from gtjax.graph import Graph, UserError
from gtjax.partition import Cut, Partition
from gtjax.strategies.base import (
    NODE,
    Demand,
    Layout,
    MeshShape,
    ModelShape,
    RoundByRound,
    attention_flops,
    attention_pass,
    part_rows,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import number_nodes, padded
from gtjax.strategies.part_edges import edge_numbers, edges_by_part
from pallas_kernels.segment_attention import (
    Backend,
    Dropout,
    Edges,
    TooLargeError,
    build_stacked_edges,
    choose_backend,
    segment_attention,
)

__all__ = ["Isolated", "TooLargeError"]


@dataclass(frozen=True)
class Isolated(RoundByRound):
    """Attention within each part.

    rows, edges: at least so many of each in the arrays of a part, for layouts of equal shapes.
    room:        by how much the arrays that a kernel derives from the edges exceed their need.
    like:        the arrays of a layout whose shapes this one gets (`TooLargeError` if it cannot).
    """

    rows: int = 1
    edges: int = 0
    room: float = 1.0
    like: Edges | None = None
    name: str = "isolated"
    mesh_axes: tuple[str, ...] = (NODE,)
    exact: bool = False

    def check(self, model: ModelShape, mesh: MeshShape) -> None:
        """Any number of devices along the node axis, and nothing in the model that mixes nodes."""
        only_axes(self, mesh)
        if model.couples_nodes is not None:
            raise UserError(
                f"isolated exchanges nothing but gradients; {model.couples_nodes} mixes all nodes "
                f"of the graph in every layer. Change that setting, or use another strategy."
            )

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
        """The edges with both ends in a part, with senders by their row in it."""
        numbering = number_nodes(partition, order_n, mesh.feature, at_least=self.rows)
        parts = edges_by_part(graph, numbering)
        lists = [edges.within(part, numbering.rows) for part, edges in enumerate(parts)]
        edge_pe = edge_numbers(lists, mesh.feature, at_least=self.edges)
        arrays = build_stacked_edges(
            lists,
            num_senders=numbering.rows,
            num_receivers=numbering.rows,
            layouts=choose_backend(kernel).layouts,
            num_edges=edge_pe.shape[1],
            room=self.room,
            like=self.like,
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
        """Attention over the edges within the part."""
        return segment_attention(
            q_nhd, k_nhd, v_nhd, arrays, bias_eh, dropout=dropout, kernel=kernel
        )

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """Arithmetic alone: gradients of parameters are exchanged under every strategy."""
        rows, edges = part_rows(cut, mesh), float(cut.own_edges_p.max())
        passes = (attention_pass(cut.own_edges_p, rows, rows, model),)
        return Demand((), passes, model.layers * attention_flops(edges, model.hidden), 0.0)

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those within the fullest part."""
        return padded(max(self.edges, cut.own_edges_p.max()), mesh.feature)

"""The whole graph on one device: nothing is exchanged. The yardstick for every other strategy.

On several devices it is what gradient-only training is made of: each part by itself, without the
edges between them (`gtjax/batching/clusters.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gtjax.graph import Graph
from gtjax.partition import Cut
from gtjax.strategies.base import Demand, Layout, MeshShape, Refusal, op_pass, part_rows
from gtjax.strategies.numbering import Numbering, padded
from gtjax.strategies.op_work import OpWork
from gtjax.strategies.part_edges import edges_by_part, stacked
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm, Edges


@dataclass(frozen=True)
class Single:
    """The edges within a part, whose senders are all on the device."""

    name: str = "single"
    mesh_axes: tuple[str, ...] = ()
    refetches: bool = False

    def refusal(self, works: Sequence[OpWork], mesh: MeshShape) -> Refusal | None:
        """One device."""
        if mesh.devices > 1:
            return Refusal(f"single runs on one device; the mesh is {mesh}", "Use another strategy")
        return None

    def layout(
        self,
        graph: Graph,
        senders: Numbering,
        receivers: Numbering,
        mesh: MeshShape,
        *,
        forms: Collection[EdgeForm] = (),
        **fit: Any,
    ) -> Layout:
        """The edges with both ends in a part; see `stacked` for shapes that layouts share."""
        parts = edges_by_part(graph, senders, receivers)
        lists = [edges.within(part, senders.rows) for part, edges in enumerate(parts)]
        sizes = (senders.rows, receivers.rows, mesh.feature)
        arrays, edge_pe = stacked(lists, *sizes, forms, **fit)
        return Layout(senders, receivers, arrays, edge_pe)

    def stages(self, arrays: Edges) -> tuple[Stage, ...]:
        """All edges at once."""
        return (Stage(arrays),)

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """Arithmetic alone."""
        rows = part_rows(cut, mesh)
        return Demand((), (op_pass(work, cut.own_edges_p, rows, rows),))

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those within the fullest part."""
        return padded(cut.own_edges_p.max(), mesh.feature)

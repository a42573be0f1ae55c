"""Parts of the graph along one axis of the mesh, heads or channels along the other.

Within a part, devices trade rows of nodes for heads or channels (all-to-all over the feature axis);
each then follows any node strategy for its share of them, over the node axis, and the outputs are
traded back (`run.py`). Halos shrink with the number of parts and messages with the number of heads,
so choose it for many devices. An op whose heads or channels do not divide over the feature axis is
computed whole by all devices of a group, which is right and gains nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gtjax.graph import Graph
from gtjax.partition import Cut
from gtjax.strategies.base import (
    FEATURE,
    NODE,
    Demand,
    Layout,
    MeshShape,
    Refusal,
    Strategy,
    Transfer,
    part_rows,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.node_halo import NodeHalo
from gtjax.strategies.numbering import Numbering
from gtjax.strategies.op_work import FLOAT, OpWork
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm


@dataclass(frozen=True)
class NodeByFeature:
    """A node strategy for a share of the heads or channels."""

    inner: Strategy = field(default_factory=NodeHalo)
    name: str = "node_by_feature"
    mesh_axes: tuple[str, ...] = (NODE, FEATURE)

    @property
    def refetches(self) -> bool:
        """As the inner strategy."""
        return self.inner.refetches

    def refusal(self, works: Sequence[OpWork], mesh: MeshShape) -> Refusal | None:
        """Some op divides over the feature axis, and the inner strategy takes the node axis."""
        refused = only_axes(self.name, self.mesh_axes, mesh)
        refused = refused or self.inner.refusal(works, MeshShape(mesh.node))
        if refused or not works or any(work.split(mesh.feature) for work in works):
            return refused
        heads = sorted({work.heads for work in works})
        return Refusal(
            f"{self.name} splits heads evenly: {' or '.join(map(str, heads))} heads do not divide "
            f"over {mesh.feature} devices",
            "Use fewer devices along the feature axis, a node strategy, or change model.heads",
        )

    def layout(
        self,
        graph: Graph,
        senders: Numbering,
        receivers: Numbering,
        mesh: MeshShape,
        *,
        forms: Collection[EdgeForm] = (),
    ) -> Layout:
        """That of the inner strategy: all devices of a part hold the part's edges."""
        return self.inner.layout(graph, senders, receivers, mesh, forms=forms)

    def stages(self, arrays: Any) -> tuple[Stage, ...]:
        """Those of the inner strategy."""
        return self.inner.stages(arrays)

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """The inner strategy's for a share of the op, and the trade of rows for that share."""
        size, rows = mesh.feature, part_rows(cut, mesh)
        edges = self.inner.padded_edges(cut, mesh)
        inner = self.inner.demand(cut, work.share(size), mesh)
        own = work.receiver_bytes + work.sender_bytes
        own_back = work.receiver_bytes + work.gradient_bytes
        out, away = FLOAT * work.out_values, (size - 1) / size
        if work.split(size) is None:
            everyone = (size - 1) * rows / size
            transfers = [
                Transfer("all-gather", FEATURE, everyone * own, forward=1.0),
                Transfer("reduce-scatter", FEATURE, everyone * own_back, forward=0.0),
            ]
            transfers += _gathered_edges(work, edges, size)
            return _with(inner, transfers, rows * own)
        share = rows / size * away
        transfers = [
            Transfer("all-to-all", FEATURE, share * own, forward=1.0),
            Transfer("all-to-all", FEATURE, share * own_back, forward=0.0),
            Transfer("all-to-all", FEATURE, share * out, count=2),
        ]
        if work.whole_edges:
            transfers += _gathered_edges(work, edges, size)
        elif work.edge_bytes:
            per = edges / size * away
            transfers += [
                Transfer("all-to-all", FEATURE, per * work.edge_bytes, forward=1.0),
                Transfer("all-to-all", FEATURE, per * work.edge_gradient_bytes, forward=0.0),
            ]
        return _with(inner, transfers, rows / size * (own + out))

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """As the inner strategy."""
        return self.inner.padded_edges(cut, mesh)


def _gathered_edges(work: OpWork, edges: int, size: int) -> list[Transfer]:
    """Every device of a group needs all of the part's edges, and gives their gradients back."""
    others = (size - 1) * edges / size
    both = (
        Transfer("all-gather", FEATURE, others * work.edge_bytes, forward=1.0),
        Transfer("reduce-scatter", FEATURE, others * work.edge_gradient_bytes, forward=0.0),
    )
    return [each for each in both if each.bytes]


def _with(inner: Demand, transfers: Sequence[Transfer], traded: float) -> Demand:
    return replace(
        inner,
        transfers=(*inner.transfers, *transfers),
        held=replace(inner.held, traded=float(traded)),
    )

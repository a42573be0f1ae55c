"""Nodes spread over devices; each fetches exactly the rows of others that its edges start from.

Of attention it moves `2 halo d` values forward and as many backward, in rounds padded to their own
longest message (see `exchange`) or, on a TPU or GPU, in one of exact sizes (see `ragged`). Edges
within the part need nothing from others, so they are worked on while the rounds travel, and the
partial results are merged. Choose it for graphs that cut well. The halo's rows stay for the
backward pass; where that is too much, see `node_ring`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut
from gtjax.strategies.base import (
    NODE,
    Demand,
    Held,
    Layout,
    MeshShape,
    Refusal,
    op_pass,
    part_rows,
)
from gtjax.strategies.by_part import StageEdges, lay_out
from gtjax.strategies.exchange import (
    Messages,
    Round,
    bring_rounds_back,
    fetch_rounds,
    from_arrivals,
    halo_rounds,
    halos,
    travelling,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import Numbering, padded
from gtjax.strategies.op_work import FLOAT, OpWork
from gtjax.strategies.part_edges import PartEdges, edges_by_part, stacked
from gtjax.strategies.ragged import (
    Ragged,
    bring_ragged_back,
    fetch_ragged,
    plan_ragged,
    travelling_at_once,
)
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm, Edges


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HaloArrays:
    """Edges within a part, edges from other parts, and the exchange that brings those' rows."""

    near: Edges
    far: Edges
    exchange: tuple[Round, ...] | Ragged


@dataclass(frozen=True)
class NodeHalo:
    """Exchange of the rows that cross parts."""

    name: str = "node_halo"
    mesh_axes: tuple[str, ...] = (NODE,)
    refetches: bool = False
    wants_rows: bool = True
    # Rounds of messages run everywhere; see `ragged` for what needs a TPU or GPU.
    exchange: Literal["rounds", "ragged"] = "rounds"

    def refusal(self, works: Sequence[OpWork], mesh: MeshShape) -> Refusal | None:
        """Any number of devices along the node axis."""
        return only_axes(self.name, self.mesh_axes, mesh)

    def layout(
        self,
        graph: Graph,
        senders: Numbering,
        receivers: Numbering,
        mesh: MeshShape,
        *,
        forms: Collection[EdgeForm] = (),
    ) -> Layout:
        """Edges by whether they cross parts, and the exchange."""
        if self.exchange == "rounds":
            return lay_out(self, graph, senders, receivers, mesh, forms)
        parts = edges_by_part(graph, senders, receivers)
        needed = halos(parts, senders)
        exchange = plan_ragged(needed, senders.rows)
        messages = [Messages((), exchange.received.rows)]
        by_part = [
            self.stage_edges(edges, part, senders, [arrivals], messages)
            for part, (edges, arrivals) in enumerate(zip(parts, needed, strict=True))
        ]
        (near_edges, near_pe), (far_edges, far_pe) = (
            stacked(
                [each.edges for each in stage],
                stage[0].senders,
                receivers.rows,
                mesh.feature,
                forms,
            )
            for stage in zip(*by_part, strict=True)
        )
        arrays = HaloArrays(near_edges, far_edges, exchange)
        return Layout(senders, receivers, arrays, np.concatenate([near_pe, far_pe], axis=1))

    @property
    def lays_out_parts(self) -> bool:
        """Where rows travel in rounds."""
        return self.exchange == "rounds"

    def stage_edges(
        self,
        edges: PartEdges,
        part: int,
        senders: Numbering,
        arrivals: Sequence[np.ndarray],
        messages: Sequence[Messages],
    ) -> list[StageEdges]:
        """Those within the part, then those from others."""
        rows = max(1, sum(each.rows for each in messages))
        return [
            StageEdges(edges.within(part, senders.rows), senders.rows),
            StageEdges(from_arrivals(edges, arrivals, messages), rows),
        ]

    def joined(
        self, edges: Sequence[Edges], rounds: Sequence[Round], senders: Numbering
    ) -> HaloArrays:
        """Near, far, and the exchange."""
        near, far = edges
        return HaloArrays(near, far, tuple(rounds))

    def stages(self, arrays: HaloArrays) -> tuple[Stage, ...]:
        """What is here, then what has come."""
        if not arrays.exchange:  # nor any edge between parts
            return (Stage(arrays.near),)
        if isinstance(arrays.exchange, Ragged):
            fetch = partial(fetch_ragged, arrays.exchange)
            back = partial(bring_ragged_back, arrays.exchange)
        else:
            fetch = partial(fetch_rounds, arrays.exchange)
            back = partial(bring_rounds_back, arrays.exchange)
        return (Stage(arrays.near), Stage(arrays.far, fetch, back))

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """The rows of the halo, and their gradients back."""
        sizes = {"row_bytes": work.sender_bytes, "gradient_bytes": work.gradient_bytes}
        if self.exchange == "ragged":
            held = int(cut.halo_p.max())
            transfers = travelling_at_once(cut, **sizes)
        else:
            rounds = halo_rounds(cut)
            held = sum(each.rows for each in rounds)
            transfers = travelling(rounds, cut.num_parts, **sizes)
        rows = part_rows(cut, mesh)
        passes = [op_pass(work, cut.own_edges_p, rows, rows, hides=True)]
        if held:
            passes.append(op_pass(work, cut.cut_edges_p, rows, held))
        halo = float(held * work.sender_bytes)
        # Of every row what the two passes give apart: results, and gradients of all its tables.
        out = FLOAT * work.out_values
        twice = work.receiver_bytes + work.gradient_bytes + out
        backward = float(held * work.gradient_bytes + 2 * rows * twice)
        return Demand(transfers, tuple(passes), Held(halo, halo, backward))

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those within parts and those between them, each padded to the most."""
        near, far = cut.own_edges_p.max(), cut.cut_edges_p.max()
        return padded(near, mesh.feature) + padded(far, mesh.feature)

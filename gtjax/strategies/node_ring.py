"""Nodes spread over devices; rows of others come part by part, are used, and are dropped.

Sequential aggregation and rematerialisation (SAR, Mostafa 2022), for any op: stage after stage a
part fetches rows that it needs, about as many as it has itself, works on the edges that start from
them, merges the partial results and forgets them; the backward pass goes round again and brings the
gradients home. At most two stages' rows are held at once, one in use and one on the way, so memory
falls as 1/P. It moves half as much again as `node_halo`: choose it when memory is what runs out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut, EvenCut
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
    stages,
    travelling,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import Numbering, padded
from gtjax.strategies.op_work import FLOAT, OpWork
from gtjax.strategies.part_edges import PartEdges
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm, Edges


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RingArrays:
    """Edges within a part, then those of each stage, and the rounds of each stage."""

    edges: tuple[Edges, ...]  # one more than there are stages
    stages: tuple[tuple[Round, ...], ...]


@dataclass(frozen=True)
class NodeRing:
    """Stage after stage, with a backward pass that goes round again."""

    name: str = "node_ring"
    mesh_axes: tuple[str, ...] = (NODE,)
    refetches: bool = True
    wants_rows: bool = True
    lays_out_parts: bool = True

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
        """Edges by the stage in which their sender arrives."""
        return lay_out(self, graph, senders, receivers, mesh, forms)

    def stage_edges(
        self,
        edges: PartEdges,
        part: int,
        senders: Numbering,
        arrivals: Sequence[np.ndarray],
        messages: Sequence[Messages],
    ) -> list[StageEdges]:
        """Those within the part, then those of each stage."""
        found = [StageEdges(edges.within(part, senders.rows), senders.rows)]
        for cut in stages(messages, senders.rows):
            rows = sum(each.rows for each in messages[cut])
            found.append(StageEdges(from_arrivals(edges, arrivals[cut], messages[cut]), rows))
        return found

    def joined(
        self, edges: Sequence[Edges], rounds: Sequence[Round], senders: Numbering
    ) -> RingArrays:
        """The edges, and the rounds by stage."""
        cuts = stages([each.messages for each in rounds], senders.rows)
        return RingArrays(tuple(edges), tuple(tuple(rounds[cut]) for cut in cuts))

    def stages(self, arrays: RingArrays) -> tuple[Stage, ...]:
        """What is here, then what comes."""
        away = zip(arrays.edges[1:], arrays.stages, strict=True)
        return (
            Stage(arrays.edges[0]),
            *(
                Stage(edges, partial(fetch_rounds, rounds), partial(bring_rounds_back, rounds))
                for edges, rounds in away
            ),
        )

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """The halo's rows twice, if their gradients need them, and those home once."""
        rounds, rows = halo_rounds(cut), part_rows(cut, mesh)
        sizes = {"row_bytes": work.sender_bytes, "gradient_bytes": work.gradient_bytes}
        transfers = travelling(rounds, cut.num_parts, **sizes, again=int(work.reads_again))
        blocks = [sum(each.rows for each in rounds[stage]) for stage in stages(rounds, rows)]
        passes = [op_pass(work, cut.own_edges_p, rows, rows, hides=True)]
        for number, block in enumerate(blocks, start=1):
            share_p = cut.cut_edges_p * (block / sum(blocks))
            hides = number < len(blocks)  # the next one travels meanwhile
            passes.append(op_pass(work, share_p, rows, block, hides=hides))
        two = sum(sorted(blocks)[-2:])
        held = float(two * work.sender_bytes)
        own = work.receiver_bytes + work.gradient_bytes + FLOAT * work.out_values
        # The compiler keeps what rows were cut out of, to send from it once more.
        kept = float(rows * (work.receiver_bytes + work.sender_bytes + FLOAT * work.out_values))
        backward = held + float(two * work.gradient_bytes + 2 * rows * own)
        return Demand(transfers, tuple(passes), Held(held, kept, backward))

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those within parts, and those of each stage, each padded to the most.

        A pair of parts that talks in several rounds is taken to have as many edges in each row.
        """
        edges = padded(cut.own_edges_p.max(), mesh.feature)
        if isinstance(cut, EvenCut):
            return edges + padded(cut.cut_edges_p.max(), mesh.feature)
        rounds = halo_rounds(cut)
        left_pq = cut.halo_pq.copy()
        for stage in stages(rounds, part_rows(cut, mesh)):
            edges_p = np.zeros(cut.num_parts)
            for each in rounds[stage]:
                for source, target in each.pairs:
                    rows = min(each.rows, left_pq[target, source])
                    left_pq[target, source] -= rows
                    per_row = cut.edges_pq[target, source] / cut.halo_pq[target, source]
                    edges_p[target] += rows * per_row
            edges += padded(round(edges_p.max()), mesh.feature)
        return edges

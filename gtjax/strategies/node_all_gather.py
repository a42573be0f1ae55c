"""Nodes spread over devices; every device gathers the rows of all of them.

Of attention it moves `2 N d (P-1)/P` values forward and as many backward (a reduce-scatter of their
gradients), and holds all N keys and values on every device; of a weighted sum half of that. Choose
it for graphs that cut badly or are small, on fast links: one large message a table, and no more
than that to set up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

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
    Transfer,
    op_pass,
    part_rows,
)
from gtjax.strategies.by_part import StageEdges, lay_out
from gtjax.strategies.exchange import Messages, Round
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import Numbering, padded
from gtjax.strategies.op_work import FLOAT, OpWork
from gtjax.strategies.part_edges import PartEdges
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm, Edges


@dataclass(frozen=True)
class NodeAllGather:
    """All-gather of senders' rows."""

    name: str = "node_all_gather"
    mesh_axes: tuple[str, ...] = (NODE,)
    refetches: bool = False
    wants_rows: bool = False
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
        """In-edges of every part, with senders numbered over all parts."""
        return lay_out(self, graph, senders, receivers, mesh, forms)

    def stage_edges(
        self,
        edges: PartEdges,
        part: int,
        senders: Numbering,
        arrivals: Sequence[np.ndarray],
        messages: Sequence[Messages],
    ) -> list[StageEdges]:
        """All at once."""
        rows = senders.parts * senders.rows
        return [StageEdges(edges.from_senders(edges.senders_e), rows)]

    def joined(self, edges: Sequence[Edges], rounds: Sequence[Round], senders: Numbering) -> Edges:
        """The edges are all there is."""
        return edges[0]

    def stages(self, arrays: Edges) -> tuple[Stage, ...]:
        """All edges, once the rows of all parts are there."""
        return (Stage(arrays, _gather, _scatter),)

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """The rows of all other parts, and their gradients back."""
        rows, others = part_rows(cut, mesh), cut.num_parts - 1
        transfers = (
            *(
                Transfer("all-gather", NODE, others * rows * size, forward=1.0)
                for size in work.sender_tables
            ),
            *(
                Transfer("reduce-scatter", NODE, others * rows * size, forward=0.0)
                for size in work.gradient_tables
            ),
        )
        passes = (op_pass(work, cut.edges_p, rows, cut.num_parts * rows),)
        remote = float(others * rows * work.sender_bytes)
        # Gradients of all tables; rows of receivers and results, and their gradients.
        own = work.receiver_bytes + FLOAT * work.out_values
        backward = float(rows * (cut.num_parts * work.gradient_bytes + 2 * own))
        return Demand(transfers, passes, Held(remote, remote, backward))

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those of the fullest part."""
        return padded(cut.edges_p.max(), mesh.feature)


def _gather(rows: Any, zero: jax.Array | None) -> Any:
    """The tables of all parts, with all heads of a node in one row.

    A TPU pads the last axis to 128: kept by head, a width of 16 would take eight times the memory.
    """
    del zero  # there is but one stage: it may begin at once

    def every(x: jax.Array) -> jax.Array:
        flat = jax.lax.all_gather(x.reshape(x.shape[0], -1), NODE, tiled=True)
        return flat.reshape(-1, *x.shape[1:])

    return jax.tree.map(every, rows)


def _scatter(totals: Any, grads: Any) -> Any:
    """The sum of what all parts have for this one's rows."""
    assert totals is None, "one stage brings everything"

    def own(x: jax.Array) -> jax.Array:
        flat = jax.lax.psum_scatter(x.reshape(x.shape[0], -1), NODE, tiled=True)
        return flat.reshape(-1, *x.shape[1:])

    return jax.tree.map(own, grads)

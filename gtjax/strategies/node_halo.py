"""Nodes spread over devices; each fetches exactly the rows of others that its edges start from.

Moves `2 halo d` values forward and as many backward, in rounds padded to their own longest message
(see `exchange`) or, on a TPU or GPU, in one of exact sizes (see `ragged`). Attention over edges
within the part needs nothing from others, so it runs while the rounds travel, and the two partial
softmaxes are merged. Choose it for graphs that cut well. The halo's keys and values stay for the
backward pass; where that is too much, see `node_ring`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
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
    attention_flops,
    attention_pass,
    part_rows,
    tables_fetched,
)
from gtjax.strategies.exchange import (
    Messages,
    Round,
    fetch_all,
    from_arrivals,
    halo_rounds,
    halos,
    plan_exchange,
    travelling,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import number_nodes, padded
from gtjax.strategies.part_edges import edge_numbers, edges_by_part
from gtjax.strategies.ragged import Ragged, fetch_ragged, plan_ragged, travelling_at_once
from pallas_kernels.segment_attention import (
    Backend,
    Edges,
    EdgeSet,
    build_stacked_edges,
    choose_backend,
    segment_attention_over,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HaloArrays:
    """Edges within a part, edges from other parts, and the exchange that brings those' rows."""

    near: Edges
    far: Edges
    exchange: tuple[Round, ...] | Ragged


@dataclass(frozen=True)
class NodeHalo(FetchThenAttend):
    """Exchange of the rows that cross parts."""

    name: str = "node_halo"
    mesh_axes: tuple[str, ...] = (NODE,)
    exact: bool = True
    # Rounds of messages run everywhere; see `ragged` for what needs a TPU or GPU.
    exchange: Literal["rounds", "ragged"] = "rounds"

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
        """Edges by whether they cross parts, and the exchange."""
        numbering = number_nodes(partition, order_n, mesh.feature)
        parts = edges_by_part(graph, numbering)
        if self.exchange == "ragged":
            needed = halos(parts, numbering)
            exchange = plan_ragged(needed, numbering.rows)
            arrivals_p = [[positions] for positions in needed]
            messages = [Messages((), exchange.received.rows)]
        else:
            plan = plan_exchange(parts, numbering)
            exchange, arrivals_p = plan.rounds, plan.arrivals
            messages = [each.messages for each in plan.rounds]
        layouts = choose_backend(kernel).layouts
        near = [edges.within(part, numbering.rows) for part, edges in enumerate(parts)]
        far = [
            from_arrivals(edges, arrivals, messages)
            for edges, arrivals in zip(parts, arrivals_p, strict=True)
        ]
        edge_pe = [edge_numbers(lists, mesh.feature) for lists in (near, far)]
        tables = (numbering.rows, max(1, sum(each.rows for each in messages)))
        near_edges, far_edges = (
            build_stacked_edges(
                lists,
                num_senders=senders,
                num_receivers=numbering.rows,
                layouts=layouts,
                num_edges=numbers.shape[1],
            )
            for lists, senders, numbers in zip((near, far), tables, edge_pe, strict=True)
        )
        arrays = HaloArrays(near_edges, far_edges, exchange)
        return Layout(numbering, arrays, np.concatenate(edge_pe, axis=1))

    def fetch(self, arrays: HaloArrays, *tables: jax.Array) -> tuple[jax.Array, ...]:
        """The rows of the halo, of each table; of nothing if there is no halo."""
        if isinstance(arrays.exchange, Ragged):
            return fetch_ragged(arrays.exchange, *tables)
        if not arrays.exchange:
            return tuple(table[:0] for table in tables)
        return fetch_all(arrays.exchange, *tables)

    def attend_fetched(
        self,
        arrays: HaloArrays,
        q_nhd: jax.Array,
        keys: tuple[jax.Array, jax.Array],
        values: tuple[jax.Array, jax.Array],
        bias_eh: jax.Array | None,
        **options: Any,
    ) -> jax.Array:
        """Attention with keys and values as (the part's own, what `fetch` gave)."""
        biases = (None, None)
        if bias_eh is not None:
            biases = jnp.split(bias_eh, [arrays.near.num_edges])
        sets = [
            EdgeSet(*each)
            for each in zip(keys, values, (arrays.near, arrays.far), biases, strict=True)
        ]
        return segment_attention_over(q_nhd, sets if arrays.exchange else sets[:1], **options)

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """Keys and values of the halo, and their gradients back."""
        # Keys and values travel together, unless keys serve many rounds of values.
        row_bytes = 2 * model.hidden * model.bytes_per_value
        tables = 2 if not model.propagates else 1
        times = tables_fetched(model) // tables
        if self.exchange == "ragged":
            held = int(cut.halo_p.max())
            transfers = travelling_at_once(cut, row_bytes * tables // 2, times)
        else:
            rounds = halo_rounds(cut)
            held = sum(each.rows for each in rounds)
            transfers = travelling(
                rounds,
                cut.num_parts,
                row_bytes * tables // 2,
                forward=times,
                again=0,
                back=times,
            )
        flops = model.layers * attention_flops(float(cut.edges_p.max()), model.hidden)
        rows = part_rows(cut, mesh)
        passes = [attention_pass(cut.own_edges_p, rows, rows, model, hides=True)]
        if held:
            passes.append(attention_pass(cut.cut_edges_p, rows, held, model))
        halo = float(held * row_bytes)
        # Gradients of both tables and of queries, outputs, and what the two passes give apart.
        row = 4.0 * model.hidden * rows
        backward = 4.0 * model.hidden * 2 * held + 6.5 * row
        return Demand(transfers, tuple(passes), flops, halo, halo + 1.2 * row, backward)

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Those within parts and those between them, each padded to the most."""
        near, far = cut.own_edges_p.max(), cut.cut_edges_p.max()
        return padded(near, mesh.feature) + padded(far, mesh.feature)

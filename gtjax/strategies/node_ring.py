"""Nodes spread over devices; rows of others come part by part, are used, and are dropped.

Sequential aggregation and rematerialisation (SAR, Mostafa 2022): stage after stage a part fetches
rows that it needs, about as many as it has itself, attends to them, merges the partial softmax and
forgets them; the backward pass goes round again and brings the gradients of keys and values home.
At most two stages' rows are held at once, one in use and one on the way, so memory falls as 1/P. It
moves half as much again as `node_halo` does: choose it when memory is what runs out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut, EvenCut, Partition
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
from gtjax.strategies.exchange import (
    Round,
    bring_all_back,
    fetch_all,
    from_arrivals,
    halo_rounds,
    plan_exchange,
    stages,
    travelling,
)
from gtjax.strategies.fitting import only_axes
from gtjax.strategies.numbering import number_nodes, padded
from gtjax.strategies.part_edges import edge_numbers, edges_by_part
from pallas_kernels.segment_attention import (
    Backend,
    Dropout,
    Edges,
    build_stacked_edges,
    choose_backend,
    finish,
    log_sum_exp,
    merge,
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RingArrays:
    """Edges within a part, then those of each stage, and the rounds of each stage."""

    edges: tuple[Edges, ...]  # one more than there are stages
    stages: tuple[tuple[Round, ...], ...]


@dataclass(frozen=True)
class NodeRing(RoundByRound):
    """Stage after stage, with a backward pass that goes round again."""

    name: str = "node_ring"
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
        """Edges by the stage in which their sender arrives."""
        numbering = number_nodes(partition, order_n, mesh.feature)
        parts = edges_by_part(graph, numbering)
        exchange = plan_exchange(parts, numbering)
        messages = [each.messages for each in exchange.rounds]
        cuts = stages(messages, numbering.rows)
        by_stage = [[edges.within(part, numbering.rows) for part, edges in enumerate(parts)]]
        by_stage += [
            [
                from_arrivals(edges, arrivals[cut], messages[cut])
                for edges, arrivals in zip(parts, exchange.arrivals, strict=True)
            ]
            for cut in cuts
        ]
        senders = [numbering.rows, *(sum(m.rows for m in messages[cut]) for cut in cuts)]
        edge_pe = [edge_numbers(lists, mesh.feature) for lists in by_stage]
        edges = tuple(
            build_stacked_edges(
                lists,
                num_senders=count,
                num_receivers=numbering.rows,
                layouts=choose_backend(kernel).layouts,
                num_edges=numbers.shape[1],
            )
            for lists, count, numbers in zip(by_stage, senders, edge_pe, strict=True)
        )
        arrays = RingArrays(edges, tuple(exchange.rounds[cut] for cut in cuts))
        return Layout(numbering, arrays, np.concatenate(edge_pe, axis=1))

    def attend(
        self,
        arrays: RingArrays,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """Attend within the part, then stage after stage."""
        dropout = dropout or Dropout(0.0, 0)
        seed = jnp.asarray(dropout.seed, jnp.uint32)
        backend = choose_backend(kernel)
        return _ring(backend, dropout.rate, q_nhd, k_nhd, v_nhd, bias_eh, arrays, seed)

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """The halo's keys and values twice, and their gradients home once."""
        rounds, rows = halo_rounds(cut), part_rows(cut, mesh)
        row_bytes = 2 * model.hidden * model.bytes_per_value
        layers = model.layers
        transfers = travelling(
            rounds, cut.num_parts, row_bytes, forward=layers, again=layers, back=layers
        )
        flops = model.layers * attention_flops(float(cut.edges_p.max()), model.hidden)
        blocks = [sum(each.rows for each in rounds[stage]) for stage in stages(rounds, rows)]
        passes = [attention_pass(cut.own_edges_p, rows, rows, model, hides=True)]
        for number, block in enumerate(blocks, start=1):
            share_p = cut.cut_edges_p * (block / sum(blocks))
            hides = number < len(blocks)  # the next one travels meanwhile
            passes.append(attention_pass(share_p, rows, block, model, hides=hides))
        held = float(sum(sorted(blocks)[-2:]) * row_bytes)
        # The compiler keeps what keys and values were cut out of, to send from it once more.
        row = 4.0 * model.hidden * rows
        return Demand(transfers, tuple(passes), flops, held, 4 * row, 1.75 * held + 5.5 * row)

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


@bind(jax.custom_vjp, nondiff_argnums=(0, 1))
def _ring(backend: Backend, rate: float, q, k, v, bias, arrays: RingArrays, seed) -> jax.Array:
    return _forward(backend, rate, q, k, v, bias, arrays, seed)[0]


def _forward(
    backend: Backend, rate: float, q, k, v, bias, arrays: RingArrays, seed
) -> tuple[jax.Array, Any]:
    dropout = Dropout(rate, seed)
    biases = _by_stage(bias, arrays)
    coming = _fetch(arrays, 0, k, v, after=k)
    state = backend.forward(q, k, v, arrays.edges[0], biases[0], dropout)
    for stage in range(len(arrays.stages)):
        there = coming
        # Not before the last stage is done with, so that two blocks are all there ever is.
        coming = _fetch(arrays, stage + 1, k, v, after=state.max_rh)
        edges, bias_e = arrays.edges[stage + 1], biases[stage + 1]
        state = merge(state, backend.forward(q, *there, edges, bias_e, dropout))
    out, lse = finish(state), log_sum_exp(state)
    return out.astype(v.dtype), (q, k, v, bias, arrays, seed, out, lse)


def _backward(backend: Backend, rate: float, saved: Any, dout: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, arrays, seed, out, lse = saved
    known = (out, lse, dout, Dropout(rate, seed))
    biases = _by_stage(bias, arrays)
    # Or the compiler would take, and keep, the rows that the forward pass fetched.
    coming = _fetch(arrays, 0, k, v, after=dout)
    dq, *home, dbias = backend.backward(q, k, v, arrays.edges[0], biases[0], *known)
    dq, *home = (x.astype(jnp.float32) for x in (dq, *home))
    dbiases: list[Any] = [dbias]
    for stage, rounds in enumerate(arrays.stages):
        there = coming
        coming = _fetch(arrays, stage + 1, k, v, after=dq)
        edges, bias_e = arrays.edges[stage + 1], biases[stage + 1]
        more, *away, dbias = backend.backward(q, *there, edges, bias_e, *known)
        dq += more
        home = bring_all_back(rounds, home, away)
        dbiases.append(dbias)
    dk, dv = (total.astype(x.dtype) for total, x in zip(home, (k, v), strict=True))
    dbias = None if bias is None else jnp.concatenate(dbiases)
    nothing = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), (arrays, seed))
    return dq.astype(q.dtype), dk, dv, dbias, *nothing


_ring.defvjp(_forward, _backward)


def _fetch(
    arrays: RingArrays, stage: int, *tables: jax.Array, after: jax.Array
) -> tuple[jax.Array, ...]:
    """The rows of a stage, once `after` is known; nothing after the last stage."""
    if stage == len(arrays.stages):
        return ()
    # A zero that no compiler sees through. It would undo an optimization_barrier on a CPU.
    bits = jax.lax.bitcast_convert_type(after.reshape(-1)[0].astype(jnp.float32), jnp.int32)
    zero = (bits == bits ^ 1).astype(jnp.int32)
    rounds = [replace(each, rows_s=each.rows_s + zero) for each in arrays.stages[stage]]
    return fetch_all(rounds, *tables)


def _by_stage(bias_eh: jax.Array | None, arrays: RingArrays) -> Sequence[jax.Array | None]:
    if bias_eh is None:
        return [None] * len(arrays.edges)
    ends = np.cumsum([edges.num_edges for edges in arrays.edges])
    return jnp.split(bias_eh, ends[:-1])

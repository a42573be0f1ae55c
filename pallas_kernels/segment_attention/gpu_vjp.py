"""Gradients of attention over edges on the GPU: two passes over the edges, one in each order.

Each recomputes the softmax from `lse` instead of storing it. By receiver, for dQ and the gradient
of the bias, it reads K and V as the forward pass does; by sender, for dK and dV, it reads Q and
dOut, and of each receiver and head two numbers more. Each pass sums in registers what belongs to
its own rows, so that nothing is scattered and no sum depends on which program comes first.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.segment_attention.gpu_program import (
    Block,
    Edge,
    Launch,
    Program,
    block_sizes,
    edge_data,
    edge_pieces,
)
from pallas_kernels.segment_attention.types import NOTHING, Dropout, Edges


def backward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None,
    out_rhd: jax.Array,
    lse_rh: jax.Array,
    dout_rhd: jax.Array,
    dropout: Dropout | None = None,
    *,
    block: Block | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    if not edges.num_edges:
        dq, dk, dv, dbias = jax.tree.map(jnp.zeros_like, (q_rhd, k_shd, v_shd, bias_eh))
        return dq, dk, dv, dbias
    heads, width = q_rhd.shape[1:]
    scale = width**-0.5
    rate = 0.0 if dropout is None else dropout.rate
    data = edge_data(edges, bias_eh, dropout, heads)
    pieces = edge_pieces(edges)
    # The gradient of the bias changes threads before it is stored, edge by edge: within a warp that
    # is a shuffle, among several a barrier.
    narrow, wide = (
        Launch(block or block_sizes(heads, width, k_shd.dtype, warps), heads, width, interpret)
        for warps in (1, 4)
    )
    # sum_j p_ij (dout_i . v_j): what the softmax subtracts from every edge's gradient
    delta_rh = (dout_rhd.astype(jnp.float32) * out_rhd).sum(axis=-1)

    def receivers(program: Program, number_t: jax.Array, inputs: Any, outputs: Any) -> None:
        _receivers(program, number_t, inputs, outputs, scale, rate)

    def senders(program: Program, number_t: jax.Array, inputs: Any, outputs: Any) -> None:
        _senders(program, number_t, inputs, outputs, scale, rate)

    nodes = (q_rhd, k_shd, v_shd, dout_rhd, lse_rh, delta_rh)
    # From zeros, since edges that pad the arrays belong to no piece and are never written.
    per_edge = () if bias_eh is None else (jnp.zeros_like(bias_eh),)
    *dbias, dq_rhd = (narrow if per_edge else wide).over_rows(
        receivers,
        merge_sums,
        pieces.by_receiver,
        (*nodes, edges.senders_e, data),
        (_like(q_rhd),),
        per_edge,
    )
    order_e = None if bias_eh is None and not rate else edges.sender_order_e
    dk_shd, dv_shd = wide.over_rows(
        senders,
        merge_sums,
        pieces.by_sender,
        (*nodes, edges.receivers_by_sender_e, order_e, data),
        (_like(k_shd), _like(v_shd)),
    )
    return dq_rhd, dk_shd, dv_shd, dbias[0] if dbias else None


def _receivers(
    program: Program, number_t: jax.Array, inputs: Any, outputs: Any, scale: float, rate: float
) -> None:
    """dQ of each piece of a receiver's edges, and the gradient of the bias of each edge."""
    q_ref, k_ref, v_ref, dout_ref, lse_ref, delta_ref, senders_e, data = inputs
    *dbias_ref, dq_ref = outputs
    own = (program.row_t, program.real_t)
    q_thd, dout_thd = program.rows(q_ref, *own) * scale, program.rows(dout_ref, *own)
    lse_th, delta_th = program.per_head(lse_ref, *own), program.per_head(delta_ref, *own)
    keys_h = program.keys(data)

    def of_edges(edges: list[Edge], dq_thd: jax.Array) -> jax.Array:
        k_thd, v_thd = ([edge.rows(ref) for edge in edges] for ref in (k_ref, v_ref))
        for edge, k, v in zip(edges, k_thd, v_thd, strict=True):
            logits_th = edge.logits((q_thd * k).sum(axis=-1), data)
            weights_th = _weights(logits_th, lse_th)
            dweights_th = (dout_thd * v).sum(axis=-1) * edge.keep(data, rate, keys_h)
            dlogits_th = weights_th * (dweights_th - delta_th)
            dq_thd += dlogits_th[:, :, None] * k
            for ref in dbias_ref:
                program.store_per_head(ref, edge.position_t, edge.real_t, dlogits_th)
        return dq_thd

    dq_thd = program.over_edges(of_edges, senders_e, program.zeros())
    program.store_rows(dq_ref, number_t, program.real_t, dq_thd * scale)


def _senders(
    program: Program, number_t: jax.Array, inputs: Any, outputs: Any, scale: float, rate: float
) -> None:
    """dK and dV of each piece of a sender's edges."""
    q_ref, k_ref, v_ref, dout_ref, lse_ref, delta_ref, receivers_e, order_e, data = inputs
    dk_ref, dv_ref = outputs
    own = (program.row_t, program.real_t)
    k_thd, v_thd = program.rows(k_ref, *own) * scale, program.rows(v_ref, *own)
    keys_h = program.keys(data)

    def of_edges(edges: list[Edge], carry: tuple[jax.Array, jax.Array]) -> Any:
        dk_thd, dv_thd = carry
        if order_e is not None:
            edges = [edge.renumbered(order_e) for edge in edges]
        q_thd, dout_thd = ([edge.rows(ref) for edge in edges] for ref in (q_ref, dout_ref))
        lse_th, delta_th = ([edge.per_head(ref) for edge in edges] for ref in (lse_ref, delta_ref))
        for i, edge in enumerate(edges):
            logits_th = edge.logits((k_thd * q_thd[i]).sum(axis=-1), data)
            weights_th = _weights(logits_th, lse_th[i])
            keep_th = edge.keep(data, rate, keys_h)
            dweights_th = (v_thd * dout_thd[i]).sum(axis=-1) * keep_th
            dlogits_th = weights_th * (dweights_th - delta_th[i])
            dk_thd += dlogits_th[:, :, None] * q_thd[i]
            dv_thd += (weights_th * keep_th)[:, :, None] * dout_thd[i]
        return dk_thd, dv_thd

    start = (program.zeros(), program.zeros())
    dk_thd, dv_thd = program.over_edges(of_edges, receivers_e, start)
    program.store_rows(dk_ref, number_t, program.real_t, dk_thd * scale)
    program.store_rows(dv_ref, number_t, program.real_t, dv_thd)


def merge_sums(program: Program, at_once: int, parts: Any, outputs: Any) -> None:
    """The sums of a hub from those of its pieces, `at_once` of them side by side."""

    def of_parts(number_t: jax.Array, real_t: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
        return [
            total + program.rows(ref, number_t, real_t)
            for total, ref in zip(sums, parts, strict=True)
        ]

    sums = program.over_parts(of_parts, [program.zeros(at_once) for _ in parts], at_once)
    for ref, total in zip(outputs, sums, strict=True):
        whole = total.sum(axis=0, keepdims=True)
        program.store_rows(ref, program.row_t, program.real_t, whole)


def _weights(logits_th: jax.Array, lse_th: jax.Array) -> jax.Array:
    return jnp.where(logits_th <= NOTHING, 0.0, jnp.exp(logits_th - lse_th))


def _like(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)

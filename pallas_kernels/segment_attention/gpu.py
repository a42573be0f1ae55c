"""Attention over edges on the GPU by Pallas Triton kernels: forward here, backward in `gpu_vjp.py`.

Choose it on any NVIDIA GPU from Ampere on: for older ones XLA's Triton does not compile. Programs
walk rows of a CSR in pieces of up to 128 edges (`pieces.py`) with an online softmax in registers
(Dao et al. 2022); a hub's pieces are merged as partials by a kernel of their own. No atomics and no
scatter: every result is written by one program, in an order that is always the same.

Bytes. An edge costs its sender's K and V and one index, `2 H D b + 4` for values of b bytes, with
bias `4 H` more, with dropout 4; a row costs Q once and its result once. For 8 heads of 16 in
float32 that is 1028 bytes an edge, against some 500 floating-point operations: memory is the limit
by far, so the loads are what the layout is for. `[nodes, heads, channels]` keeps a node's row
together and a program takes all its heads (up to 512 channels in float32, 1024 in bfloat16), so
that a gather reads whole 128-byte lines, 16 bytes a thread. Short rows share a program, which is
only as idle as its rows differ in length, and they stand sorted by that. Temporary memory is one
result for each piece of a hub, `4 H (D + 2)` bytes per 64 to 128 of its edges.

Why not Mosaic GPU, which Pallas means to keep when it drops Triton: it is for Hopper and later,
and what it adds (asynchronous copies of blocks, matrix units) needs dense blocks. Here every
row lies elsewhere, each product is of a vector with a vector, and the 20 to 48 warps that fit on a
multiprocessor by their registers, two edges in flight in each, are enough by the sheet to cover the
latency of memory (20 KiB in flight; no GPU has been there to measure it). jax 0.12 warns that
Pallas Triton will go; all that depends on it is in `gpu_program.py`.
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
from pallas_kernels.segment_attention.types import NOTHING, Dropout, Edges, Partial


def forward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    dropout: Dropout | None = None,
    *,
    block: Block | None = None,
    interpret: bool = False,
) -> Partial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised.

    `block` overrides the sizes of a program; `interpret` runs the kernels anywhere, slowly.
    """
    rows, heads, width = q_rhd.shape
    if not edges.num_edges:
        nothing_rh, zeros_rhd = jnp.full((rows, heads), NOTHING), jnp.zeros((rows, heads, width))
        return Partial(nothing_rh, jnp.zeros((rows, heads)), zeros_rhd)
    block = block or block_sizes(heads, width, k_shd.dtype)
    rate = 0.0 if dropout is None else dropout.rate

    def attend(program: Program, number_t: jax.Array, inputs: Any, outputs: Any) -> None:
        _attend(program, number_t, inputs, outputs, width**-0.5, rate)

    per_head = jax.ShapeDtypeStruct((rows, heads), jnp.float32)
    data = edge_data(edges, bias_eh, dropout, heads)
    partial = Launch(block, heads, width, interpret).over_rows(
        attend,
        merge_partials,
        edge_pieces(edges).by_receiver,
        (q_rhd, k_shd, v_shd, edges.senders_e, data),
        (per_head, per_head, jax.ShapeDtypeStruct((rows, heads, width), jnp.float32)),
    )
    return Partial(*partial)


def _attend(
    program: Program, number_t: jax.Array, inputs: Any, outputs: Any, scale: float, rate: float
) -> None:
    """Online softmax of each piece over its edges."""
    q_ref, k_ref, v_ref, senders_e, data = inputs
    q_thd = program.rows(q_ref, program.row_t, program.real_t) * scale
    keys_h = program.keys(data)

    def of_edges(edges: list[Edge], carry: Partial) -> Partial:
        k_thd = [edge.rows(k_ref) for edge in edges]
        v_thd = [edge.rows(v_ref) for edge in edges]
        logits_th = [
            edge.logits((q_thd * k).sum(axis=-1), data)
            for edge, k in zip(edges, k_thd, strict=True)
        ]
        # On the GPU this maximum passes over a NaN; the exponentials below do not.
        max_th = carry.max_rh
        for logits in logits_th:
            max_th = jnp.maximum(max_th, logits)
        scale_th = jnp.exp(carry.max_rh - max_th)
        sum_th, acc_thd = carry.sum_rh * scale_th, carry.acc_rhd * scale_th[:, :, None]
        for edge, logits, v in zip(edges, logits_th, v_thd, strict=True):
            weights_th = jnp.where(logits <= NOTHING, 0.0, jnp.exp(logits - max_th))
            sum_th += weights_th
            acc_thd += (weights_th * edge.keep(data, rate, keys_h))[:, :, None] * v
        return Partial(max_th, sum_th, acc_thd)

    start = Partial(program.full(NOTHING), program.full(0.0), program.zeros())
    partial = program.over_edges(of_edges, senders_e, start)
    _store(program, number_t, outputs, partial)


def merge_partials(program: Program, at_once: int, parts: Any, outputs: Any) -> None:
    """The partial of a hub from those of its pieces, `at_once` of them side by side."""
    max_ref, sum_ref, acc_ref = parts

    def of_parts(number_t: jax.Array, real_t: jax.Array, carry: Partial) -> Partial:
        part_max_th = jnp.where(
            real_t[:, None], program.per_head(max_ref, number_t, real_t), NOTHING
        )
        max_th = jnp.maximum(carry.max_rh, part_max_th)
        old_th, new_th = jnp.exp(carry.max_rh - max_th), jnp.exp(part_max_th - max_th)
        return Partial(
            max_th,
            carry.sum_rh * old_th + program.per_head(sum_ref, number_t, real_t) * new_th,
            carry.acc_rhd * old_th[:, :, None]
            + program.rows(acc_ref, number_t, real_t) * new_th[:, :, None],
        )

    start = Partial(
        program.full(NOTHING, at_once), program.full(0.0, at_once), program.zeros(at_once)
    )
    partial = program.over_parts(of_parts, start, at_once)
    max_1h = partial.max_rh.max(axis=0, keepdims=True)
    scale_th = jnp.exp(partial.max_rh - max_1h)
    whole = Partial(
        max_1h,
        (partial.sum_rh * scale_th).sum(axis=0, keepdims=True),
        (partial.acc_rhd * scale_th[:, :, None]).sum(axis=0, keepdims=True),
    )
    _store(program, program.row_t, outputs, whole)


def _store(program: Program, number_t: jax.Array, outputs: Any, partial: Partial) -> None:
    max_ref, sum_ref, acc_ref = outputs
    program.store_per_head(max_ref, number_t, program.real_t, partial.max_rh)
    program.store_per_head(sum_ref, number_t, program.real_t, partial.sum_rh)
    program.store_rows(acc_ref, number_t, program.real_t, partial.acc_rhd)

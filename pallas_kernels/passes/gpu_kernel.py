"""Forward and backward of any op with a traced message on a GPU, by Pallas Triton kernels.

Choose it on any NVIDIA GPU from Ampere on: for older ones XLA's Triton does not compile. Programs
walk rows of a CSR in pieces of up to 128 edges (`pieces.py`) with sums, or an online softmax (Dao
et al. 2022), in registers, and write what comes of a row when it ends; a hub's pieces are merged by
a kernel of their own. No atomics and no scatter: every result is written by one program, in an
order that is always the same. Arithmetic is contracted (`contraction.py`).

The backward pass walks the edges twice, once in each order, and recomputes the messages. By
receiver, for the gradients of receivers, edges and what is shared, it reads rows of senders as the
forward pass does; by sender, for theirs, it reads rows of receivers, dOut, and for a softmax two
numbers more of each receiver and head. Each pass sums in registers what belongs to its own rows, so
that nothing is scattered and no sum depends on which program comes first. What is shared has a sum
in every program, and XLA adds those up.

Bytes. An edge costs its sender's rows and one index; with numbers of its own those too, with
dropout 4; a row costs its own rows and its result once. Memory is the limit by far, so the loads
are what the layout is for. `[nodes, heads, channels]` keeps a node's row together and a program
takes all its heads (up to 512 channels in float32, 1024 in bfloat16), so that a gather reads whole
128-byte lines, 16 bytes a thread. Short rows share a program, which is only as idle as its rows
differ in length, and they stand sorted by that. Temporary memory is one result for each piece of a
hub, `4 H (D + 2)` bytes per 64 to 128 of its edges, and for what is shared a row a program.

Why not Mosaic GPU, which Pallas means to keep when it drops Triton: it is for Hopper and later,
and what it adds (asynchronous copies of blocks, matrix units) needs dense blocks. Here every
row lies elsewhere, each product is of a vector with a vector, and the 20 to 48 warps that fit on a
multiprocessor by their registers, two edges in flight in each, are enough by the sheet to cover the
latency of memory (20 KiB in flight; no GPU has been there to measure it). jax 0.12 warns that
Pallas Triton will go; all that depends on it is in `gpu.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.op import Op
from pallas_kernels.passes.contraction import LOG2_E
from pallas_kernels.passes.gpu import (
    Block,
    Edge,
    Launch,
    Program,
    block_sizes,
    draws_of,
    edge_pieces,
    other_ends,
)
from pallas_kernels.passes.traced import (
    Tracer,
    is_softmax,
    partial_of,
    softmax_gradients,
    sum_gradients,
    terms_of,
    wide_table,
)
from pallas_kernels.reductions import NOTHING
from pallas_kernels.reductions import SoftmaxPartial as Partial

Tree = Any


class _InBlocks:
    """Blocks are `[pieces, heads, channels]`."""

    def sum(self, x: jax.Array) -> jax.Array:
        return x.sum(axis=-1)

    def spread(self, x: jax.Array) -> jax.Array:
        return x[:, :, None]


CHANNELS = _InBlocks()


def forward(
    tracer: Tracer,
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    draw: Dropout | None,
    *,
    block: Block | None = None,
    interpret: bool = False,
) -> Any:
    """The partial of every row over its edges.

    `block` overrides the sizes of a program; `interpret` runs the kernels anywhere, slowly.
    """
    rows = edges.offsets_r.shape[0] - 1
    _, heads, width = wide_table(sender).shape
    if not edges.num_edges:
        nothing = jnp.zeros((rows, heads, width)), jnp.full((rows, heads), NOTHING)
        return partial_of(op, edges, *nothing)
    shapes = ((heads,), (heads,), (heads, width)) if is_softmax(op) else ((heads, width),)
    results = tuple(jax.ShapeDtypeStruct((rows, *shape), jnp.float32) for shape in shapes)
    given = (tracer, op, receiver, sender, shared, edges, edge, draw, block, interpret)
    *of_heads, acc_rhd = _over_edges(*given, shapes, _as_it_is, results)
    return partial_of(op, edges, acc_rhd, *of_heads)


def whole(
    tracer: Tracer,
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    draw: Dropout | None,
    *,
    block: Block | None = None,
    interpret: bool = False,
) -> tuple[jax.Array, Any]:
    """The result of every row, in the type of the senders' rows, and what is saved of it.

    A row is finished where its last edge is: no partial of it is ever in memory.
    """
    given = (tracer, op, receiver, sender, shared, edges, edge, draw)
    if not edges.num_edges or op.reduce.name not in ("softmax", "sum"):
        return op.reduce.finish(forward(*given, block=block, interpret=interpret))
    rows = edges.offsets_r.shape[0] - 1
    _, heads, width = wide_table(sender).shape
    dtype = jnp.result_type(*jax.tree.leaves(sender))
    out = jax.ShapeDtypeStruct((rows, heads, width), dtype)
    if not is_softmax(op):
        shapes = ((heads, width),)
        return _over_edges(*given, block, interpret, shapes, _as_it_is, (out,))[0], None
    shapes = ((heads,), (heads,), (heads, width))
    lse = jax.ShapeDtypeStruct((rows, heads), jnp.float32)
    return _over_edges(*given, block, interpret, shapes, _finished, (out, lse))


def _over_edges(
    tracer: Tracer,
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    draw: Dropout | None,
    block: Block | None,
    interpret: bool,
    partials: tuple[tuple[int, ...], ...],
    finish: Callable[..., tuple[jax.Array, ...]],
    results: tuple[jax.ShapeDtypeStruct, ...],
) -> Any:
    """What `finish` makes of the partials of rows."""
    _, heads, width = wide_table(sender).shape
    rate = 0.0 if draw is None else draw.rate
    traced, softmax = tracer(op, width), is_softmax(op)

    def forward(program: Program, inputs: Any, per_edge: Any) -> tuple[Any, Any]:
        (receiver, sender, shared), senders_e, edge, draws = inputs
        own, common = traced.of_receiver(program.own(receiver)), program.shared(shared)
        keys_h = program.keys(draws)

        def of_edges(edges: list[Edge], carry: Any) -> Any:
            others, rows = other_ends(edges, sender), [e.own(edge) for e in edges]
            keeps = [e.keep(draws, rate, keys_h) for e in edges]
            add = _attended if softmax else _summed

            def step() -> Any:
                said = [
                    traced.message(own, other, row, common, CHANNELS)
                    for other, row in zip(others, rows, strict=True)
                ]
                return add(edges, said, keeps, carry)

            return program.contracted(step)

        if not softmax:
            return (program.over_edges(of_edges, senders_e, program.zeros()),), ()
        start = Partial(program.full(NOTHING), program.full(0.0), program.zeros())
        max_th, sum_th, acc_thd = program.over_edges(of_edges, senders_e, start)
        return (max_th * (1 / LOG2_E), sum_th, acc_thd), ()

    block = block or block_sizes(heads, width, wide_table(sender).dtype)
    return Launch(block, heads, width, interpret).over_rows(
        forward,
        _merge_softmax if softmax else _merge_sums,
        finish,
        edge_pieces(edges).by_receiver,
        ((receiver, sender, _as_rows(shared)), edges.senders_e, edge, draws_of(edges, draw, heads)),
        partials,
        results,
    )


def _summed(edges: list[Edge], said: list[Any], keeps: list[Any], acc_thd: jax.Array) -> jax.Array:
    for value, keep in zip(said, keeps, strict=True):
        acc_thd += sum_gradients((value,), keep, CHANNELS)
    return acc_thd


def _attended(edges: list[Edge], said: list[Any], keeps: list[Any], carry: Partial) -> Partial:
    """Online softmax, with the largest logit so far times log2(e): weights are powers of two."""
    logits = [
        jnp.where(e.real_t[:, None], each, NOTHING)
        for e, (each, _) in zip(edges, said, strict=True)
    ]
    # On the GPU this maximum passes over a NaN; the exponentials below do not. It starts from
    # NOTHING, above that of no edge and of -inf times log2(e): neither ever weighs anything.
    max_th = jnp.maximum(carry.max_rh, reduce(jnp.maximum, logits) * LOG2_E)
    scale_th = jnp.exp2(carry.max_rh - max_th)
    sum_th, acc_thd = carry.sum_rh * scale_th, carry.acc_rhd * scale_th[:, :, None]
    for each, (_, value), keep in zip(logits, said, keeps, strict=True):
        weights_th = jnp.exp2(each * LOG2_E - max_th)
        sum_th += weights_th
        acc_thd += (weights_th * keep)[:, :, None] * value
    return Partial(max_th, sum_th, acc_thd)


def _finished(max_th: jax.Array, sum_th: jax.Array, acc_thd: jax.Array) -> tuple[Any, Any]:
    """The result of rows, and the logarithm of their sums of weights."""
    some_th = sum_th != 0
    total_th = jnp.where(some_th, sum_th, 1.0)
    lse_th = jnp.where(some_th, max_th + jnp.log(total_th), 0.0)
    return acc_thd * (1.0 / total_th)[:, :, None], lse_th


def backward(
    tracer: Tracer,
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    out: jax.Array,
    saved: Any,
    dout: jax.Array,
    draw: Dropout | None,
    *,
    block: Block | None = None,
    interpret: bool = False,
) -> tuple[Tree, Tree, Tree, Tree]:
    """Gradients of receivers, senders, what is shared, and edges."""
    if not edges.num_edges:
        return jax.tree.map(jnp.zeros_like, (receiver, sender, shared, edge))
    _, heads, width = wide_table(sender).shape
    rate = 0.0 if draw is None else draw.rate
    traced, softmax = tracer(op, width), is_softmax(op)

    def gradients(e: Edge, said: Any, terms: Any, keep: Any) -> Any:
        if softmax:
            return softmax_gradients(said, terms, e.real_t[:, None], keep, CHANNELS)
        return jnp.where(e.real_t[:, None, None], sum_gradients(terms, keep, CHANNELS), 0.0)

    def own_rows(edges: list[Edge], refs: Any) -> Iterator[Any]:
        # Rows with channels before anything is used; numbers of heads, which cost a register for
        # every thread, not before their edge's turn.
        wide = any(len(ref.shape) == 3 for ref in jax.tree.leaves(refs))
        rows = (e.own(refs) for e in edges)
        return iter(list(rows)) if wide else rows

    def receivers(program: Program, inputs: Any, per_edge: Any) -> tuple[Any, Any]:
        (receiver, sender, shared), terms, senders_e, edge, draws = inputs
        own, pull_own = jax.vjp(traced.of_receiver, program.own(receiver))
        common, terms = program.shared(shared), program.own(terms)
        keys_h = program.keys(draws)

        def of_edge(e: Edge, other: Any, row: Any, sums: Any) -> Any:
            keep = e.keep(draws, rate, keys_h)

            def message(own: Any, common: Any, row: Any) -> Any:
                return traced.message(own, other, row, common, CHANNELS)

            def step() -> Any:
                said, pull = jax.vjp(message, own, common, row)
                d_own, d_common, d_row = pull(gradients(e, said, terms, keep))
                return jax.tree.map(jnp.add, sums, (d_own, d_common)), d_row

            return program.contracted(step)

        def of_edges(edges: list[Edge], sums: Any) -> Any:
            others, rows = other_ends(edges, sender), own_rows(edges, edge)
            for e, other, row in zip(edges, others, rows, strict=False):
                sums, d_row = of_edge(e, other, row, sums)
                for ref, d in zip(per_edge, jax.tree.leaves(d_row), strict=True):
                    program.store(ref, e.position_t, e.real_t, d)
            return sums

        start = jax.tree.map(jnp.zeros_like, (own, common))
        d_own, d_common = program.over_edges(of_edges, senders_e, start)
        return jax.tree.leaves(pull_own(d_own)), jax.tree.leaves(d_common)

    def senders(program: Program, inputs: Any, per_edge: Any) -> tuple[Any, Any]:
        (receiver, sender, shared), terms, receivers_e, order_e, edge, draws = inputs
        own, pull_own = jax.vjp(traced.of_sender, program.own(sender))
        common, keys_h = program.shared(shared), program.keys(draws)

        def of_edge(e: Edge, other: Any, terms: Any, row: Any, sums: Any) -> Any:
            keep = e.keep(draws, rate, keys_h)

            def message(own: Any) -> Any:
                return traced.message(other, own, row, common, CHANNELS)

            def step() -> Any:
                said, pull = jax.vjp(message, own)
                (d_own,) = pull(gradients(e, said, terms, keep))
                return jax.tree.map(jnp.add, sums, d_own)

            return program.contracted(step)

        def of_edges(edges: list[Edge], sums: Any) -> Any:
            if order_e is not None:
                edges = [e.renumbered(order_e) for e in edges]
            others, rows = other_ends(edges, (receiver, terms)), own_rows(edges, edge)
            for e, (other, of_other), row in zip(edges, others, rows, strict=False):
                sums = of_edge(e, other, of_other, row, sums)
            return sums

        d_own = program.over_edges(of_edges, receivers_e, jax.tree.map(jnp.zeros_like, own))
        return jax.tree.leaves(pull_own(d_own)), ()

    # A number of an edge changes threads before it is stored: within a warp that is a shuffle,
    # among several a barrier, and two edges at a time do not stay in registers.
    dtype = wide_table(sender).dtype
    one, four = (block or block_sizes(heads, width, dtype, warps) for warps in (1, 4))
    one = one if one.warps == 1 else replace(one, unroll=1)
    narrow, wide = (Launch(each, heads, width, interpret) for each in (one, four))
    rows = (receiver, sender, _as_rows(shared))
    terms, draws = terms_of(op, out, saved, dout), draws_of(edges, draw, heads)
    # From zeros, since edges that pad the arrays belong to no piece and are never written.
    per_edge = tuple(jnp.zeros_like(x) for x in jax.tree.leaves(edge))
    of_heads = any(x.ndim == 2 for x in per_edge)
    found: list[jax.Array] = []
    if jax.tree.leaves((receiver, shared, edge)):
        found = list(
            (narrow if of_heads else wide).over_rows(
                receivers,
                _merge_sums,
                _as_it_is,
                edge_pieces(edges).by_receiver,
                (rows, terms, edges.senders_e, edge, draws),
                tuple(x.shape[1:] for x in jax.tree.leaves(receiver)),
                _likes(receiver),
                per_edge,
                _likes(shared),
            )
        )
    order_e = edges.sender_order_e if per_edge or rate else None
    of_senders = wide.over_rows(
        senders,
        _merge_sums,
        _as_it_is,
        edge_pieces(edges).by_sender,
        (rows, terms, edges.receivers_by_sender_e, order_e, edge, draws),
        tuple(x.shape[1:] for x in jax.tree.leaves(sender)),
        _likes(sender),
    )
    structure = jax.tree.structure((edge, receiver, shared))
    d_edge, d_receiver, d_shared = jax.tree.unflatten(structure, found)
    return d_receiver, jax.tree.unflatten(jax.tree.structure(sender), of_senders), d_shared, d_edge


def _merge_softmax(program: Program, at_once: int, parts: Any) -> Any:
    """The partial of a hub from those of its pieces, `at_once` of them side by side."""

    def of_parts(number_t: jax.Array, real_t: jax.Array, carry: Partial) -> Partial:
        part = Partial(*program.load(parts, number_t, real_t))
        part_max_th = jnp.where(real_t[:, None], part.max_rh, NOTHING)
        max_th = jnp.maximum(carry.max_rh, part_max_th)
        old_th, new_th = jnp.exp(carry.max_rh - max_th), jnp.exp(part_max_th - max_th)
        return Partial(
            max_th,
            carry.sum_rh * old_th + part.sum_rh * new_th,
            carry.acc_rhd * old_th[:, :, None] + part.acc_rhd * new_th[:, :, None],
        )

    start = Partial(
        program.full(NOTHING, at_once), program.full(0.0, at_once), program.zeros(at_once)
    )
    partial = program.over_parts(of_parts, start, at_once)
    max_1h = partial.max_rh.max(axis=0, keepdims=True)
    scale_th = jnp.exp(partial.max_rh - max_1h)
    return (
        max_1h,
        (partial.sum_rh * scale_th).sum(axis=0, keepdims=True),
        (partial.acc_rhd * scale_th[:, :, None]).sum(axis=0, keepdims=True),
    )


def _merge_sums(program: Program, at_once: int, parts: Any) -> Any:
    """The sums of a hub from those of its pieces, `at_once` of them side by side."""

    def of_parts(number_t: jax.Array, real_t: jax.Array, sums: Any) -> Any:
        return jax.tree.map(jnp.add, sums, program.load(parts, number_t, real_t))

    start = tuple(
        program.full(0.0, at_once) if len(ref.shape) == 2 else program.zeros(at_once)
        for ref in parts
    )
    sums = program.over_parts(of_parts, start, at_once)
    return tuple(total.sum(axis=0, keepdims=True) for total in sums)


def _as_it_is(*partial: jax.Array) -> tuple[jax.Array, ...]:
    return partial


def _as_rows(shared: Tree) -> Tree:
    """What is shared as tables of one row."""
    return jax.tree.map(lambda x: x[None], shared)


def _likes(tree: Tree) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.tree.leaves(tree))

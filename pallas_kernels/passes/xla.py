"""Any op over edges in plain XLA: the reference, and what runs where no kernel does.

Works on dense tiles of rows (`edges/tiling.py`), a bounded chunk at a time: temporary memory is
that of one result per tile, which is per node and per 64 edges of a hub; on a GPU, where rows are
written in place, that of one chunk. Nothing is scattered to where another may write, and results
are the same from run to run. The backward pass computes the messages again and differentiates them
tile by tile: by receiver for the gradients of receivers, edges and what is shared, and over the
edges sorted by sender for those of senders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any, Literal

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout, keep_scale
from pallas_kernels.edges.edges import Edges, Tilings
from pallas_kernels.edges.tile_sums import map_slots, reduce_tiles
from pallas_kernels.edges.tiling import Tiling
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import Slots, sum_axis

Tree = Any


def forward(
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    draw: Dropout | None,
    *,
    in_place: bool = False,
) -> Tree:
    """The partial of every row over its edges; `in_place`: as `tile_sums.py` has it."""

    def of_tile(rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array) -> Tree:
        real_tw, senders_tw, positions_tw = slots(starts_t, senders_tw)
        rows = (rows_of(receiver, rows_t), rows_of(sender, senders_tw))
        message = _of_slots(op, "receiver", real_tw)
        said = message(*rows, edges_at(edge, positions_tw, real_tw), in_float32(shared))
        return op.reduce.of_slots(said, _slots(op, said, edges, positions_tw, real_tw, draw))

    by_receiver = tilings_of(edges).by_receiver
    if op.reduce.per_edge:
        return _in_edge_order(map_slots(by_receiver, of_tile), edges)
    return reduce_tiles(
        by_receiver,
        lambda *chunk: (of_tile(*chunk), (), ()),
        op.reduce.merge_axis,
        op.reduce.nothing,
        in_place=in_place,
    )[0]


def backward(
    op: Op,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edges: Edges,
    edge: Tree,
    out: jax.Array,
    saved: Tree,
    dout: jax.Array,
    draw: Dropout | None,
    *,
    in_place: bool = False,
) -> tuple[Tree, Tree, Tree, Tree]:
    """Gradients of receivers, senders, what is shared, and edges; None for whole numbers."""
    tilings = tilings_of(edges)
    terms = op.reduce.terms(out, saved, dout)

    def pulled(
        compute: Callable[..., Tree], terms: Tree, positions_tw: Any, real_tw: Any, *arguments: Tree
    ) -> tuple[Tree, ...]:
        said, pull = jax.vjp(compute, *arguments)
        of_slots = _slots(op, said, edges, positions_tw, real_tw, draw)
        return pull(op.reduce.gradients(said, terms, of_slots))

    def receiver_side(rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array) -> Any:
        real_tw, senders_tw, positions_tw = slots(starts_t, senders_tw)
        other = rows_of(sender, senders_tw)
        own, mine = _split(rows_of(receiver, rows_t))
        said, of_edge = _split(edges_at(edge, positions_tw, real_tw))
        weights, common = _split(in_float32(shared))

        def compute(own: Tree, said: Tree, weights: Tree) -> Tree:
            message = _of_slots(op, "receiver", real_tw)
            return message(mine(own), other, of_edge(said), common(weights))

        if op.reduce.per_edge:
            of_rows = at_positions(terms, positions_tw)
        else:
            of_rows = jax.tree.map(lambda x: x[:, None], rows_of(terms, rows_t))
        d_own, d_said, d_weights = pulled(
            compute, of_rows, positions_tw, real_tw, own, said, weights
        )
        return d_own, d_said, d_weights

    def sender_side(rows_t: jax.Array, starts_t: jax.Array, receivers_tw: jax.Array) -> Any:
        real_tw, receivers_tw, positions_tw = slots(starts_t, receivers_tw)
        positions_tw = at_positions(edges.sender_order_e, positions_tw)  # in receiver order
        other, of_edge = (
            rows_of(receiver, receivers_tw),
            edges_at(edge, positions_tw, real_tw),
        )
        own, mine = _split(rows_of(sender, rows_t))

        def compute(own: Tree) -> Tree:
            message = _of_slots(op, "sender", real_tw)
            return message(other, mine(own), of_edge, in_float32(shared))

        of_columns = (
            at_positions(terms, positions_tw)
            if op.reduce.per_edge
            else rows_of(terms, receivers_tw)
        )
        (d_own,) = pulled(compute, of_columns, positions_tw, real_tw, own)
        return d_own, (), ()

    floats_shared = _split(in_float32(shared))[0]
    nothing = jax.tree.map(jnp.zeros_like, floats_shared)

    def summed(tiling: Tiling, of_tile: Callable[..., Any], rows: Tree, total: Tree) -> Any:
        no_sums = [0.0 for _ in _split(rows)[0]]
        return reduce_tiles(tiling, of_tile, sum_axis, no_sums, total, in_place=in_place)

    d_receiver, by_width, d_shared = summed(tilings.by_receiver, receiver_side, receiver, nothing)
    d_edge = [_in_edge_order(of_widths, edges) for of_widths in zip(*by_width, strict=True)]
    d_sender: list[Any] = []
    if _split(sender)[0]:
        d_sender, _, _ = summed(tilings.by_sender, sender_side, sender, ())
    return (
        like(receiver, d_receiver),
        like(sender, d_sender),
        like(shared, d_shared),
        like(edge, d_edge),
    )


def _in_edge_order(of_widths: Sequence[jax.Array], edges: Edges) -> jax.Array:
    """Numbers of all slots, `[tiles, slots, ...]` for each width, as those of the edges."""
    by_slot = jnp.concatenate([x.reshape(-1, *x.shape[2:]) for x in of_widths])
    return at_positions(by_slot, tilings_of(edges).slot_e)


def _of_slots(
    op: Op, one: Literal["receiver", "sender"], real_tw: jax.Array
) -> Callable[..., Tree]:
    """The message of every slot, where all slots of a tile have one receiver, or one sender."""
    in_axes = (None, 0, 0, None) if one == "receiver" else (0, None, 0, None)
    tiles, width = real_tw.shape
    of_slots = jax.vmap(op.message, in_axes=in_axes, axis_size=width)
    return jax.vmap(of_slots, in_axes=(0, 0, 0, None), axis_size=tiles)


def _slots(
    op: Op,
    said: Tree,
    edges: Edges,
    positions_tw: jax.Array,
    real_tw: jax.Array,
    draw: Dropout | None,
) -> Slots:
    """Dropout is drawn for every head, which are the first axes of a message."""

    def ids() -> jax.Array:
        return at_positions(edges.edge_ids_e, positions_tw)

    if draw is None or draw.rate == 0:
        return Slots(real_tw, 1.0, ids)
    heads = said[0].shape[2:] if op.reduce.name == "softmax" else said.shape[2:-1]
    keep = keep_scale(draw, ids(), math.prod(heads))
    return Slots(real_tw, keep.reshape(*positions_tw.shape, *heads), ids)


def tilings_of(edges: Edges) -> Tilings:
    """The tiles, which `build_edges` makes on request."""
    if edges.tilings is None:
        raise ValueError('the xla kernel works on tiles: build_edges(..., forms=["tiles"])')
    return edges.tilings


def slots(starts_t: jax.Array, columns_tw: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which slots of a tile hold an edge, the other end of each, and its position.

    A slot without an edge has the other end and the position of the tile's first edge, so that a
    message, which may be any function, is never asked of numbers that are nobody's.
    """
    real_tw = columns_tw >= 0
    columns_tw = jnp.maximum(jnp.where(real_tw, columns_tw, columns_tw[:, :1]), 0)
    positions_tw = starts_t[:, None] + jnp.arange(columns_tw.shape[1], dtype=starts_t.dtype)
    return real_tw, columns_tw, jnp.where(real_tw, positions_tw, starts_t[:, None])


def rows_of(tree: Tree, index: jax.Array) -> Tree:
    """Rows by number, those of fractions in float32."""
    return in_float32(jax.tree.map(lambda x: jnp.asarray(x)[index], tree))


def edges_at(edge: Tree, positions_tw: jax.Array, real_tw: jax.Array) -> Tree:
    """Rows of edges by position; zero in tiles that are all padding, where NaN may stand."""
    some_t = real_tw.any(axis=1)

    def take(array_e: jax.Array) -> jax.Array:
        rows = at_positions(array_e, positions_tw)
        return jnp.where(some_t.reshape(-1, *(1,) * (rows.ndim - 1)), rows, 0)

    return in_float32(jax.tree.map(take, edge))


def at_positions(array_e: Any, positions: jax.Array) -> jax.Array:
    """Look up edges or slots; what is past the last one belongs to padding and reads as 0."""
    if not array_e.shape[0]:
        return jnp.zeros((*positions.shape, *array_e.shape[1:]), array_e.dtype)
    return jnp.asarray(array_e).at[positions].get(mode="fill", fill_value=0)


def in_float32(tree: Tree) -> Tree:
    """Fractions in float32, whole numbers as they are."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32) if is_fraction(x) else x, tree)


def is_fraction(array: Any) -> bool:
    """Whether an array has a gradient."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def _split(tree: Tree) -> tuple[list[jax.Array], Callable[[list[jax.Array]], Tree]]:
    """The leaves that have a gradient, and the tree with others in their place."""
    leaves, treedef = jax.tree.flatten(tree)
    fractions = [is_fraction(leaf) for leaf in leaves]

    def merged(chosen: list[jax.Array]) -> Tree:
        new = iter(chosen)
        return treedef.unflatten(
            next(new) if fraction else leaf
            for leaf, fraction in zip(leaves, fractions, strict=True)
        )

    chosen = [leaf for leaf, fraction in zip(leaves, fractions, strict=True) if fraction]
    return chosen, merged


def like(tree: Tree, gradients: list[jax.Array]) -> Tree:
    """Gradients as the tree that they are of, in its types; None for whole numbers."""
    left = iter(gradients)
    return jax.tree.map(lambda x: next(left).astype(x.dtype) if is_fraction(x) else None, tree)


XLA = Kernel("xla", forward, backward, ("cpu", "tpu"), needs=("tiles",))
XLA_IN_PLACE = Kernel(
    "xla",
    bind(forward, in_place=True),
    bind(backward, in_place=True),
    ("gpu",),
    needs=("tiles",),
)

"""Forward and backward of any op with a traced message on a TPU, by Pallas kernels.

The first choice on every TPU since v5e, for any number and width of heads, in float32 and bfloat16.
Compiled for v5e, v5p, v6e and 7x and interpreted on a CPU for its numbers; no time of it has been
measured on a chip.

What limits ops over edges is fetching the rows of senders: for dot-product attention 2 x heads x
width numbers an edge (1 KiB at 8 x 16 in float32) for as many multiplications as there are numbers.
A TPU has no gather from HBM, but copies whose addresses are computed; so all that an op needs of a
node stands in one row (`tpu_tables.py`), one copy fetches it, and everything else is arranged to
start few copies, cheaply, long before their rows are needed (`tpu.py`). With 8 x 16 in float32 the
compiler needs, for v5e, some 13 bundles of instructions to start an edge's copy (7 in bfloat16,
where key and value share their words and the row is half as long) and some 10 for the arithmetic of
dot-product attention, padding included; in the backward pass about the same, twice. These are
counts in the compiled program, not times.

Rows meet in strips of eight edges of one row (`strips.py`), a register each. The alternatives:

- A one-hot product on the matrix unit over tiles of mixed rows has no padding, but to reach float32
  accuracy each product takes three to six passes, and a tile takes seven of them against three here
  (sums over a head's channels and back); the maxima still need a scan; and 0 x NaN is NaN, so that
  one row's would reach all rows of the tile.
- Rows one after the other (a loop over CSR) waste most of each register on rows of few edges and
  wait for the matrix unit's latency at every row.
- SparseCore (v5p, v6e, 7x; not v5e) gathers by a list of indices, which would free the scalar unit
  from starting copies. But as a kernel of its own it would write the gathered rows to HBM, [E, 2
  HD], and read them again: three times the traffic, and the very temporary that this op does not
  have. Fused it would need the softmax on the SparseCore's own, narrower units. Not built.
- Senders in VMEM: XLA puts the table there by itself if it fits, and then each copy is two loads
  and stores. For larger graphs it would take edges sorted by blocks of senders as well, and one
  partial for each row and block: worth it only for graphs with more edges than some ten a row and
  block.

A hub is a run of strips over many tiles, whose partials are merged in VMEM as the online softmax
does (Milakov and Gimelshein 2018). One core works on one tile after another, so that no one waits
for the hub; on chips with two cores (v5p) each takes half of the blocks of rows, and there the half
with the larger hubs takes longer.

The backward pass is two walks. Over the edges by receiver, for the gradients of receivers, edges
and what is shared: a block's own rows are those of receivers with dOut and, for a softmax, two
numbers a head, and rows of senders are gathered. Over the edges by sender, for theirs: the other
way round, with the same two tables. So it starts two copies an edge, and holds in memory these two
tables and the gradients; nothing of the size of the edges unless edges have rows of their own.
Those are brought to the order of the slots, and their gradients back, by XLA: numbers of heads one
at a time, with three more gathers of [E, H] numbers and memory for two arrays of that size; rows
with channels likewise, and they cost what they weigh, about three times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.edges.strips import STRIP
from pallas_kernels.op import Op
from pallas_kernels.passes.tpu import Tile, by_edge, edge_data, strip_pair, walk
from pallas_kernels.passes.tpu_sizes import GROUP_LANES
from pallas_kernels.passes.tpu_tables import HALF, LANES, Heads, head_groups, pack, swap_halves
from pallas_kernels.passes.traced import (
    Traced,
    Tracer,
    is_softmax,
    partial_of,
    softmax_gradients,
    sum_gradients,
    terms_of,
    wide_table,
)
from pallas_kernels.reductions import NOTHING

Tree = Any


class _InLanes:
    """Slots by strip, `[strips, 8, lanes]`: one lane a channel, or one a head."""

    def __init__(self, tile: Tile):
        self._tile = tile

    def sum(self, x: jax.Array) -> jax.Array:
        return self._tile.by_strip(self._tile.sum_of_heads(self._tile.by_slot(x)))

    def spread(self, x: jax.Array) -> jax.Array:
        return self._tile.by_strip(self._tile.to_channels(self._tile.by_slot(x)))


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
    interpret: Any = False,
) -> Any:
    """The partial of every row over its edges."""
    wide, strips = wide_table(sender), strip_pair(edges).by_receiver
    _, heads, width = wide.shape
    traced, softmax = tracer(op, width), is_softmax(op)
    structure = jax.tree.structure(shared)
    parts = []
    for group in head_groups(heads, width, GROUP_LANES):
        lanes, far = group.lanes, pack(group, sender)
        assert far is not None  # it has a wide table
        body, first = (
            (_attend, bind(_nothing, lanes)) if softmax else (_sum, bind(_zeros, (lanes,)))
        )
        (acc_rl, *pair_rg), _, _ = walk(
            bind(body, traced, structure),
            first,
            strips=strips,
            heads=group,
            num_rows=edges.offsets_r.shape[0] - 1,
            near=pack(group, receiver),
            far=far,
            shared=_in_lanes(group, shared),
            data=edge_data(strips, group, edge, draw),
            out_lanes=(lanes, LANES) if softmax else (lanes,),
            scratch_lanes=(*(LANES,) * 4, lanes, lanes) if softmax else (lanes,),
            name=f"{op.name}_forward",
            interpret=interpret,
        )
        of_heads = [pair[:, i : i + group.count] for pair in pair_rg for i in (0, HALF)]
        parts.append((group.unflat(acc_rl, wide), *of_heads))
    whole = (jnp.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return partial_of(op, edges, *whole)


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
    interpret: Any = False,
) -> tuple[Tree, Tree, Tree, Tree]:
    """Gradients of receivers, senders, what is shared, and edges."""
    _, heads, width = wide_table(sender).shape
    traced, strips = tracer(op, width), strip_pair(edges)
    of_receivers = (receiver, terms_of(op, out, saved, dout))
    structure = jax.tree.structure(shared)
    groups = []
    for group in head_groups(heads, width, GROUP_LANES):
        near = pack(group, of_receivers)
        assert near is not None
        # Without the barrier the forward pass's table would be kept for this one, in every layer.
        words, senders = lax.optimization_barrier((near.words_nl, sender))
        near, far = near.with_words(words), pack(group, senders)
        assert far is not None
        common = _in_lanes(group, shared)

        def both_ways(
            own: Tree, of_tile: Any, strips: Any, num_rows: int, group: Any = group, **options: Any
        ) -> Any:
            lanes = [group.lanes_of(x) for x in jax.tree.leaves(own)]
            totals = [group.lanes] * options.get("totals", 0)
            return walk(
                bind(of_tile, traced, is_softmax(op), structure),
                bind(_zeros, lanes, totals),
                strips=strips,
                heads=group,
                num_rows=num_rows,
                data=edge_data(strips, group, edge, draw),
                out_lanes=lanes,
                scratch_lanes=lanes,
                interpret=interpret,
                **options,
            )

        d_receiver, d_edge, d_shared = [], [], []
        if jax.tree.leaves((receiver, shared, edge)):
            d_receiver, by_slot, d_shared = both_ways(
                receiver,
                _receiver_side,
                strips.by_receiver,
                edges.offsets_r.shape[0] - 1,
                near=near,
                far=far,
                shared=common,
                totals=len(common),
                edge_out=edge is not None,
                name=f"{op.name}_receivers",
            )
            d_edge = [
                by_edge(slots, strips.slot_e, group, like)
                for slots, like in zip(by_slot, jax.tree.leaves(edge), strict=True)
            ]
        d_sender, _, _ = both_ways(
            sender,
            _sender_side,
            strips.by_sender,
            edges.sender_offsets_s.shape[0] - 1,
            near=far,
            far=near,
            shared=common,
            name=f"{op.name}_senders",
        )
        groups.append(
            (
                _unflat(group, receiver, d_receiver),
                _unflat(group, sender, d_sender),
                jax.tree.unflatten(structure, [_unflat_one(group, x) for x in d_shared]),
                jax.tree.unflatten(jax.tree.structure(edge), d_edge),
            )
        )
    *of_rows, d_edge = (
        jax.tree.map(lambda *parts, axis=axis: jnp.concatenate(parts, axis=axis), *parts)
        for axis, parts in zip((1, 1, 0, 1), zip(*groups, strict=True), strict=True)
    )
    found = (*of_rows, d_edge)
    return jax.tree.map(lambda x, d: d.astype(x.dtype), (receiver, sender, shared, edge), found)


def _unflat(group: Heads, tree: Tree, rows: Sequence[jax.Array]) -> Tree:
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(group.unflat(d, x) for d, x in zip(rows, leaves, strict=True))


def _unflat_one(group: Heads, total_l: jax.Array) -> jax.Array:
    return total_l[: group.count * group.width].reshape(group.count, group.width)


def _in_lanes(group: Heads, shared: Tree) -> list[jax.Array]:
    """Arrays [heads, width] as [1, lanes]."""
    return [group.flat(x[None]).astype(jnp.float32) for x in jax.tree.leaves(shared)]


def _zeros(lanes: Sequence[int], totals: Sequence[int] = ()) -> tuple[jax.Array, ...]:
    shapes = [*((STRIP, n) for n in totals), *((1, n) for n in lanes)]
    return tuple(jnp.zeros(shape, jnp.float32) for shape in shapes)


def _nothing(lanes: int) -> tuple[jax.Array, ...]:
    """Largest logit, sum of weights and weighted values of no edges, as `_attend` carries them."""
    return jnp.full((1, LANES), NOTHING, jnp.float32), *_zeros((LANES, lanes))


def _messages(traced: Traced, structure: Any, tile: Tile) -> Any:
    """What the edges of a tile say, where rows are receivers."""
    own = jax.tree.map(lambda x: x[:, None], traced.of_receiver(tile.near))
    common = structure.unflatten(tile.shared)
    return traced.message(own, tile.far, tile.edge_rows(), common, _InLanes(tile))


def _sum(traced: Traced, structure: Any, tile: Tile, refs: Any, carry: Any) -> Any:
    """Add a tile to the sums of its rows."""
    values = _messages(traced, structure, tile)
    values = sum_gradients((values,), tile.keep(), _InLanes(tile))
    refs.scratch[0][...] = jnp.where(tile.real(tile.heads.lanes), values, 0.0).sum(axis=1)
    return _add_to_rows(tile, refs, carry)


def _attend(traced: Traced, structure: Any, tile: Tile, refs: Any, carry: Any) -> Any:
    """Add a tile to the running softmax of its rows."""
    lanes = tile.heads.lanes
    max_ref, before_ref, sum_ref, decay_ref, values_ref, wide_decay_ref = refs.scratch
    logits, v = _messages(traced, structure, tile)
    # Comparisons written so that a NaN stays one: it must reach the guard of the training.
    logits = jnp.where(tile.real(LANES) & ~(logits < NOTHING), logits, NOTHING)
    max_ref[...] = logits.max(axis=1)

    def largest_so_far(strip: jax.Array, largest: jax.Array) -> jax.Array:
        at = pl.ds(strip, 1)
        mine = max_ref[at]
        before = jnp.where(tile.fresh(strip), mine, largest)
        largest = jnp.maximum(before, mine)
        before_ref[at] = before
        max_ref[at] = largest
        return largest

    largest, total, values = carry
    largest = tile.over_strips(largest_so_far, largest)
    weights = jnp.where(logits <= NOTHING, 0.0, jnp.exp(logits - max_ref[...][:, None]))
    decay = jnp.exp(before_ref[...] - max_ref[...])
    kept = tile.to_channels(tile.by_slot(weights * tile.keep()))
    v = jnp.where(tile.real(lanes), v, 0.0)
    values_ref[...] = (tile.by_strip(kept) * v).sum(axis=1)
    wide_decay_ref[...] = tile.to_channels(decay)
    # Sums go in the second half of the lanes, to leave in one register with the maxima.
    sum_ref[...] = swap_halves(weights.sum(axis=1))
    decay_ref[...] = swap_halves(decay)
    first_half = lax.broadcasted_iota(jnp.int32, (1, LANES), 1) < HALF
    acc_ref, pair_ref = refs.outs

    def add(strip: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        at, row, fresh = pl.ds(strip, 1), pl.ds(tile.row(strip), 1), tile.fresh(strip)
        total = jnp.where(fresh, 0.0, carry[0] * decay_ref[at]) + sum_ref[at]
        values = jnp.where(fresh, 0.0, carry[1] * wide_decay_ref[at]) + values_ref[at]
        pair_ref[row] = jnp.where(first_half, max_ref[at], total)
        acc_ref[row] = values  # the row's last strip is the one whose value stays
        return total, values

    return largest, *tile.over_strips(add, (total, values))


def _receiver_side(
    traced: Traced, softmax: bool, structure: Any, tile: Tile, refs: Any, carry: Any
) -> Any:
    """Add a tile to the gradients of its rows, of its edges and of what is shared."""
    rows, terms = tile.near
    own, pull_own = jax.vjp(traced.of_receiver, rows)
    terms = jax.tree.map(lambda x: x[:, None], terms)
    other, common = tile.far, structure.unflatten(tile.shared)

    def message(own: Any, row: Any, common: Any) -> Any:
        return traced.message(own, other, row, common, _InLanes(tile))

    spread = bind(jax.tree.map, bind(_for_all_slots, tile))
    said, pull = jax.vjp(message, spread(own), tile.edge_rows(), spread(common))
    d_own, d_edge, d_common = pull(_gradients(tile, softmax, said, terms))
    if refs.edge_blocks:
        tile.set_edge_rows(jax.tree.leaves(d_edge))
    count = len(refs.totals)
    totals = tuple(
        total + _of_edges(tile, d).sum(axis=0)
        for total, d in zip(carry[:count], jax.tree.leaves(d_common), strict=True)
    )
    _set_scratch(tile, refs, d_own, pull_own)
    return *totals, *_add_to_rows(tile, refs, carry[count:])


def _sender_side(
    traced: Traced, softmax: bool, structure: Any, tile: Tile, refs: Any, carry: Any
) -> Any:
    """Add a tile to the gradients of its rows, which are senders."""
    own, pull_own = jax.vjp(traced.of_sender, tile.near)
    (other, terms), common = tile.far, structure.unflatten(tile.shared)
    rows = tile.edge_rows()

    def message(own: Any) -> Any:
        return traced.message(other, own, rows, common, _InLanes(tile))

    said, pull = jax.vjp(message, jax.tree.map(bind(_for_all_slots, tile), own))
    (d_own,) = pull(_gradients(tile, softmax, said, terms))
    _set_scratch(tile, refs, d_own, pull_own)
    return _add_to_rows(tile, refs, carry)


def _for_all_slots(tile: Tile, x: jax.Array) -> jax.Array:
    """A row of each strip, or of all, for every slot: so each has a gradient of its own."""
    x = x[:, None] if x.ndim == 2 else x
    return jnp.broadcast_to(x, (tile.strips, STRIP, x.shape[-1]))


def _of_edges(tile: Tile, x: jax.Array) -> jax.Array:
    """Zero where there is no edge."""
    return jnp.where(tile.real(x.shape[-1]), x, 0.0)


def _set_scratch(tile: Tile, refs: Any, d_own: Any, pull_own: Callable[..., Any]) -> None:
    """Sum gradients over the slots of each strip."""
    by_strip = jax.tree.map(lambda d: _of_edges(tile, d).sum(axis=1), d_own)
    for ref, d in zip(refs.scratch, jax.tree.leaves(pull_own(by_strip)), strict=True):
        ref[...] = d


def _gradients(tile: Tile, softmax: bool, said: Any, terms: Any) -> Any:
    """Of what the edges of a tile say."""
    channels, keep = _InLanes(tile), tile.keep()
    if not softmax:
        return jnp.broadcast_to(sum_gradients(terms, keep, channels), said.shape)
    # Lanes past the last head hold other numbers in rows of numbers of heads.
    a_head = lax.broadcasted_iota(jnp.int32, said[0].shape, 2) < tile.heads.count
    there = tile.real(LANES) & a_head & ~(said[0] <= NOTHING)
    dlogits, dvalues = softmax_gradients(said, terms, there, keep, channels)
    return jnp.where(there, dlogits, 0.0), dvalues


def _add_to_rows(tile: Tile, refs: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Sum the results of the strips of each row."""
    if not refs.outs:
        return carry

    def add(strip: jax.Array, totals: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        at, row, fresh = pl.ds(strip, 1), pl.ds(tile.row(strip), 1), tile.fresh(strip)
        totals = tuple(
            jnp.where(fresh, 0.0, total) + strips_ref[at]
            for total, strips_ref in zip(totals, refs.scratch, strict=True)
        )
        for out_ref, total in zip(refs.outs, totals, strict=True):
            out_ref[row] = total  # the row's last strip is the one whose value stays
        return totals

    return tile.over_strips(add, carry)

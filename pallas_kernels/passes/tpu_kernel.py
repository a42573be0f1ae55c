"""Forward and backward of any op with a traced message on a TPU, by Pallas kernels.

The first choice on every TPU since v5e, for any number and width of heads, in float32 and bfloat16.
Compiled for v5e, v5p, v6e and 7x and interpreted on a CPU for its numbers; no time of it has been
measured on a chip.

What limits ops over edges is fetching the rows of senders: for dot-product attention 2 x heads x
width numbers an edge (1 KiB at 8 x 16 in float32) for as many multiplications as there are numbers.
A TPU has no gather from HBM, but copies whose addresses are computed; so all that an op needs of a
node stands in one row (`tpu_tables.py`), one copy fetches it, and everything else is arranged to
start copies cheaply, long before their rows are needed (`tpu.py`). A copy takes the scalar unit
some four bundles to start, and while it does so the other units do the arithmetic, of which there
is less. How many bundles an edge takes is stored by `experiments/tpu_bundles.py`: counts in the
compiled program, not times.

Rows meet in strips of eight edges, of eight rows (`strips.py`), a register each. The alternatives:

- Strips of eight edges of one row need no sorting of rows, but more padding (1.48 slots to an edge
  on an R-MAT graph against 1.25), and give one row's results in a register of eight, whose merging
  took as long as the rest of the arithmetic. With the copies started before the arithmetic and not
  beside it, such a kernel took 22 to 24 bundles an edge on v5e.
- A one-hot product on the matrix unit over tiles of mixed rows has no padding, but to reach float32
  accuracy each product takes three to six passes, and a tile takes seven of them; the maxima still
  need a scan; and 0 x NaN is NaN, so that one row's would reach all rows of the tile.
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

A hub has the eight sublanes to itself, whose partials are merged as the online softmax does
(Milakov and Gimelshein 2018). One core works on one tile after another, so that no one waits for
the hub; on chips with two cores (v5p) each takes half of the blocks of rows, and there the half
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

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.edges.strips import STEPS, STRIP
from pallas_kernels.op import Op
from pallas_kernels.passes.tpu import Chunk, by_edge, edge_data, strip_pair, walk
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
        lanes, far = group.lanes, pack(group, sender, interpret)
        assert far is not None  # it has a wide table
        out_lanes = (lanes, LANES) if softmax else (lanes,)
        (acc_rl, *pair_rg), _, _ = walk(
            bind(_attend if softmax else _sum, traced, structure),
            bind(_nothing, lanes) if softmax else bind(_zeros, out_lanes),
            bind(_no_edges, out_lanes),
            strips=strips,
            heads=group,
            num_rows=edges.offsets_r.shape[0] - 1,
            near=pack(group, receiver, interpret),
            far=far,
            shared=_in_lanes(group, shared),
            data=edge_data(strips, group, edge, draw),
            out_lanes=out_lanes,
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
        near = pack(group, of_receivers, interpret)
        assert near is not None
        # Without the barrier the forward pass's table would be kept for this one, in every layer.
        words, senders = lax.optimization_barrier((near.words_ml, sender))
        near, far = near.with_words(words), pack(group, senders, interpret)
        assert far is not None
        common = _in_lanes(group, shared)

        def both_ways(
            own: Tree, of_chunk: Any, strips: Any, num_rows: int, group: Any = group, **options: Any
        ) -> Any:
            lanes = [group.lanes_of(x) for x in jax.tree.leaves(own)]
            totals = [group.lanes] * options.get("totals", 0)
            return walk(
                bind(of_chunk, traced, is_softmax(op), structure),
                bind(_zeros, [*totals, *lanes]),
                bind(_zeros, lanes, rows=1),
                strips=strips,
                heads=group,
                num_rows=num_rows,
                data=edge_data(strips, group, edge, draw),
                out_lanes=lanes,
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


def _zeros(lanes: Sequence[int], rows: int = STRIP) -> tuple[jax.Array, ...]:
    return tuple(jnp.zeros((rows, n), jnp.float32) for n in lanes)


def _nothing(lanes: int) -> tuple[jax.Array, ...]:
    """Largest logit, sum of weights and weighted values of no edges, as `_attend` carries them."""
    return jnp.full((STRIP, LANES), NOTHING, jnp.float32), *_zeros((LANES, lanes))


def _no_edges(lanes: Sequence[int]) -> tuple[jax.Array, ...]:
    """The row of a receiver without edges, as `_attend` and `_sum` give it."""
    values, *pair = _zeros(lanes, rows=1)
    return values, *(_paired(jnp.full_like(x, NOTHING), x) for x in pair)


def _paired(largest: jax.Array, total: jax.Array) -> jax.Array:
    """Two numbers of heads in one register."""
    first_half = lax.broadcasted_iota(jnp.int32, largest.shape, 1) < HALF
    return jnp.where(first_half, largest, swap_halves(total))


def _messages(traced: Traced, structure: Any, chunk: Chunk) -> Any:
    """What the edges of a chunk say, where rows are receivers."""
    own = jax.tree.map(lambda x: x[None], traced.of_receiver(chunk.near))
    common = structure.unflatten(chunk.shared)
    return traced.message(own, chunk.far, chunk.edge_rows, common, chunk)


def _sum(traced: Traced, structure: Any, chunk: Chunk, refs: Any, carry: Any) -> Any:
    """Add a chunk to the sums of its rows."""
    values = _messages(traced, structure, chunk)
    values = sum_gradients((values,), chunk.keep, chunk)
    return _add_to_rows(chunk, [_of_edges(chunk, values).sum(axis=0)], carry)


def _attend(traced: Traced, structure: Any, chunk: Chunk, refs: Any, carry: Any) -> Any:
    """Add a chunk to the running softmax of its rows."""
    largest, total, values = carry
    logits, v = _messages(traced, structure, chunk)
    # Comparisons written so that a NaN stays one: it must reach the guard of the training.
    logits = jnp.where(chunk.real(LANES) & ~(logits < NOTHING), logits, NOTHING)
    before = jnp.where(chunk.fresh, NOTHING, largest)
    largest = jnp.maximum(before, logits.max(axis=0))
    weights = jnp.where(logits <= NOTHING, 0.0, jnp.exp(logits - largest))
    decay = jnp.exp(before - largest)
    total = jnp.where(chunk.fresh, 0.0, total * decay) + weights.sum(axis=0)
    of_chunk = (chunk.spread(weights * chunk.keep) * _of_edges(chunk, v)).sum(axis=0)
    values = jnp.where(chunk.fresh, 0.0, values * chunk.spread(decay)) + of_chunk
    # A hub's eight sublanes are one row.
    of_row = largest.max(axis=0, keepdims=True)
    share = jnp.exp(largest - of_row)
    chunk.set_rows(
        [
            jnp.where(chunk.hub, _all_sublanes(values * chunk.spread(share)), values),
            _paired(
                jnp.where(chunk.hub, of_row, largest),
                jnp.where(chunk.hub, _all_sublanes(total * share), total),
            ),
        ]
    )
    return largest, total, values


def _receiver_side(
    traced: Traced, softmax: bool, structure: Any, chunk: Chunk, refs: Any, carry: Any
) -> Any:
    """Add a chunk to the gradients of its rows, of its edges and of what is shared."""
    rows, terms = chunk.near
    own, pull_own = jax.vjp(traced.of_receiver, rows)
    terms = jax.tree.map(lambda x: x[None], terms)
    other, common = chunk.far, structure.unflatten(chunk.shared)

    def message(own: Any, row: Any, common: Any) -> Any:
        return traced.message(own, other, row, common, chunk)

    spread = bind(jax.tree.map, _for_all_slots)
    said, pull = jax.vjp(message, spread(own), chunk.edge_rows, spread(common))
    d_own, d_edge, d_common = pull(_gradients(chunk, softmax, said, terms))
    if refs.edge_slots:
        chunk.set_edge_rows(jax.tree.leaves(d_edge))
    count = len(refs.totals)
    totals = tuple(
        total + _of_edges(chunk, d).sum(axis=0)
        for total, d in zip(carry[:count], jax.tree.leaves(d_common), strict=True)
    )
    return *totals, *_add_to_rows(chunk, _of_rows(chunk, d_own, pull_own), carry[count:])


def _sender_side(
    traced: Traced, softmax: bool, structure: Any, chunk: Chunk, refs: Any, carry: Any
) -> Any:
    """Add a chunk to the gradients of its rows, which are senders."""
    own, pull_own = jax.vjp(traced.of_sender, chunk.near)
    (other, terms), common = chunk.far, structure.unflatten(chunk.shared)

    def message(own: Any) -> Any:
        return traced.message(other, own, chunk.edge_rows, common, chunk)

    said, pull = jax.vjp(message, jax.tree.map(_for_all_slots, own))
    (d_own,) = pull(_gradients(chunk, softmax, said, terms))
    return _add_to_rows(chunk, _of_rows(chunk, d_own, pull_own), carry)


def _for_all_slots(x: jax.Array) -> jax.Array:
    """A row of each sublane, or of all, for every slot: so each has a gradient of its own."""
    return jnp.broadcast_to(x if x.ndim == 3 else x[None], (STEPS, STRIP, x.shape[-1]))


def _of_edges(chunk: Chunk, x: jax.Array) -> jax.Array:
    """Zero where there is no edge."""
    return jnp.where(chunk.real(x.shape[-1]), x, 0.0)


def _of_rows(chunk: Chunk, d_own: Any, pull_own: Callable[..., Any]) -> list[jax.Array]:
    """Sum gradients over the slots of each sublane."""
    by_sublane = jax.tree.map(lambda d: _of_edges(chunk, d).sum(axis=0), d_own)
    return jax.tree.leaves(pull_own(by_sublane))


def _gradients(chunk: Chunk, softmax: bool, said: Any, terms: Any) -> Any:
    """Of what the edges of a chunk say."""
    if not softmax:
        return jnp.broadcast_to(sum_gradients(terms, chunk.keep, chunk), said.shape)
    # Lanes past the last head hold other numbers in rows of numbers of heads.
    a_head = lax.broadcasted_iota(jnp.int32, said[0].shape, 2) < chunk.heads.count
    there = chunk.real(LANES) & a_head & ~(said[0] <= NOTHING)
    dlogits, dvalues = softmax_gradients(said, terms, there, chunk.keep, chunk)
    return jnp.where(there, dlogits, 0.0), dvalues


def _all_sublanes(x: jax.Array) -> jax.Array:
    """The sum of the sublanes, in each of them."""
    return jnp.broadcast_to(x.sum(axis=0, keepdims=True), x.shape)


def _add_to_rows(
    chunk: Chunk, found: Sequence[jax.Array], carry: Sequence[jax.Array]
) -> tuple[jax.Array, ...]:
    """Sum the results of the chunks of each row."""
    totals = tuple(
        jnp.where(chunk.fresh, 0.0, total) + x for total, x in zip(carry, found, strict=True)
    )
    chunk.set_rows([jnp.where(chunk.hub, _all_sublanes(x), x) for x in totals])
    return totals

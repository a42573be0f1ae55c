"""Attention over edges on a TPU: a Pallas kernel, the forward pass (its gradient: `tpu_vjp.py`).

The first choice on every TPU since v5e, for any number and width of heads, in float32 and bfloat16.
Compiled for v5e, v5p, v6e and 7x and interpreted on a CPU for its numbers; no time of it has been
measured on a chip.

What limits attention over edges is fetching the rows of senders: 2 x heads x width numbers an edge
(1 KiB at 8 x 16 in float32) for as many multiplications as there are numbers. A TPU has no gather
from HBM, but copies whose addresses are computed; so keys and values of a node stand in one row,
one copy fetches both, and everything else is arranged to start few copies, cheaply, long before
their rows are needed (`tpu_tiles.py`). With 8 x 16 in float32 the compiler needs, for v5e, some 13
bundles of instructions to start an edge's copy (7 in bfloat16, where key and value share their
words and the row is half as long) and some 10 for its arithmetic, padding included; in the backward
pass about the same, twice. These are counts in the compiled program, not times.

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

A bias is brought to the order of the slots, and its gradient back, by XLA, one number at a time;
with one the op takes three more gathers of [E, H] numbers, and memory for two arrays of that size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.segment_attention.block_sizes import GROUP_LANES
from pallas_kernels.segment_attention.tpu_tiles import (
    HALF,
    LANES,
    Heads,
    Tile,
    edge_data,
    head_groups,
    pack,
    strip_pair,
    swap_halves,
    unpack,
    walk,
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
    interpret: Any = False,
) -> Partial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised."""
    strips = strip_pair(edges).by_receiver
    parts = []
    for group in head_groups(q_rhd.shape[1], q_rhd.shape[2], GROUP_LANES):
        acc_rl, pair_rg = walk(
            _attend,
            _nothing,
            strips=strips,
            heads=group,
            near_rl=group.flat(q_rhd).astype(jnp.float32),
            far_cl=pack(group.flat(k_shd), group.flat(v_shd)),
            data=edge_data(strips, group, bias_eh, dropout),
            out_lanes=(group.lanes, LANES),
            scratch_lanes=(LANES, LANES, LANES, LANES, group.lanes, group.lanes),
            name="segment_attention_forward",
            interpret=interpret,
        )
        max_rh, sum_rh = (pair_rg[:, i : i + group.count] for i in (0, HALF))
        parts.append(Partial(max_rh, sum_rh, group.unflat(acc_rl)))
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays, axis=1), *parts)


def _nothing(heads: Heads) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Largest logit, sum of weights and weighted values of no edges, as `_attend` carries them."""
    return (
        jnp.full((1, LANES), NOTHING, jnp.float32),
        jnp.zeros((1, LANES), jnp.float32),
        jnp.zeros((1, heads.lanes), jnp.float32),
    )


def _attend(tile: Tile, refs: Any, carry: Any) -> Any:
    """Add a tile to the running softmax of its rows."""
    lanes = tile.heads.lanes
    max_ref, before_ref, sum_ref, decay_ref, values_ref, wide_decay_ref = refs.scratch
    k, v = unpack(tile.far, lanes)
    products = tile.by_strip(k) * tile.near[:, None]
    logits = tile.by_strip(tile.sum_of_heads(tile.by_slot(products))) * tile.heads.width**-0.5
    logits += tile.bias()
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
    v = jnp.where(tile.real(lanes), tile.by_strip(v), 0.0)
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

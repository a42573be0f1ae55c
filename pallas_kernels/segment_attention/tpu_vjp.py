"""Gradients of the TPU attention kernel, recomputed from the inputs, `out` and `lse`.

Two walks (`tpu_tiles.py`). Over the edges by receiver, for dQ and the bias: a block's own rows are
[q, dout, lse, delta], and [k, v] is gathered. Over the edges by sender, for dK and dV: the other
way round, with the same two tables. So the backward pass starts two copies an edge, and holds in
memory these two tables and the gradients; nothing of the size of the edges unless a gradient of
the bias is asked for.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from pallas_kernels.segment_attention.block_sizes import GROUP_LANES
from pallas_kernels.segment_attention.tpu_tiles import (
    LANES,
    Heads,
    Tile,
    edge_data,
    head_groups,
    pack,
    strip_pair,
    unpack,
    unpack_pair,
    walk,
    with_pair,
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
    interpret: Any = False,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    strips = strip_pair(edges)
    # sum_j p_ij (dout_i . v_j): what the softmax subtracts from every edge's gradient
    delta_rh = (dout_rhd.astype(jnp.float32) * out_rhd.astype(jnp.float32)).sum(axis=-1)
    dq, dk, dv, dbias = [], [], [], []
    for group in head_groups(q_rhd.shape[1], q_rhd.shape[2], GROUP_LANES):
        qd_rl = pack(group.flat(q_rhd), group.flat(dout_rhd))
        qd_rl = with_pair(qd_rl, group.of(lse_rh), group.of(delta_rh))
        # Without the barrier the forward pass's table would be kept for this one, in every layer.
        qd_rl, k, v = lax.optimization_barrier((qd_rl, k_shd, v_shd))
        kv_sl = pack(group.flat(k), group.flat(v))
        dq_rl, *dlogits_tgw = walk(
            _receiver_side,
            _zeros,
            strips=strips.by_receiver,
            heads=group,
            near_rl=qd_rl,
            far_cl=kv_sl,
            data=edge_data(strips.by_receiver, group, bias_eh, dropout),
            out_lanes=(group.lanes,),
            scratch_lanes=(group.lanes,),
            edge_out=bias_eh is not None,
            name="segment_attention_dq",
            interpret=interpret,
        )
        dk_sl, dv_sl = walk(
            _sender_side,
            _zeros_twice,
            strips=strips.by_sender,
            heads=group,
            near_rl=kv_sl,
            far_cl=qd_rl,
            data=edge_data(strips.by_sender, group, bias_eh, dropout),
            out_lanes=(group.lanes, group.lanes),
            scratch_lanes=(group.lanes, group.lanes),
            name="segment_attention_dkv",
            interpret=interpret,
        )
        dq.append(group.unflat(dq_rl))
        dk.append(group.unflat(dk_sl))
        dv.append(group.unflat(dv_sl))
        if bias_eh is not None:
            dbias.append(_by_edge(dlogits_tgw[0], strips.slot_e, group))
    return (
        jnp.concatenate(dq, axis=1).astype(q_rhd.dtype),
        jnp.concatenate(dk, axis=1).astype(k_shd.dtype),
        jnp.concatenate(dv, axis=1).astype(v_shd.dtype),
        None if bias_eh is None else jnp.concatenate(dbias, axis=1).astype(bias_eh.dtype),
    )


def _by_edge(slots_tgw: jax.Array, slot_e: Any, heads: Heads) -> jax.Array:
    """From the order of the slots to that of the edges; past the last slot is zero."""
    slots_gs = jnp.moveaxis(slots_tgw, 1, 0).reshape(heads.sublanes, -1)
    of_head = (slots_gs[h].at[slot_e].get(mode="fill", fill_value=0) for h in range(heads.count))
    return jnp.stack(list(of_head), axis=1)


def _zeros(heads: Heads) -> tuple[jax.Array, ...]:
    return (jnp.zeros((1, heads.lanes), jnp.float32),)


def _zeros_twice(heads: Heads) -> tuple[jax.Array, ...]:
    return _zeros(heads) * 2


def _receiver_side(tile: Tile, refs: Any, carry: Any) -> Any:
    """Add a tile to the gradients of its queries."""
    lanes = tile.heads.lanes
    k, v = (tile.by_strip(x) for x in unpack(tile.far, lanes))
    q, dout = (x[:, None] for x in unpack(tile.near, lanes))
    lse, delta = (x[:, None] for x in unpack_pair(tile.near))
    _, dlogits = _gradients(tile, q * k, dout * v, lse, delta)
    if refs.edge_out is not None:
        refs.edge_block[...] = tile.turn(tile.by_slot(dlogits))
    k = jnp.where(tile.real(lanes), k, 0.0)
    wide = tile.by_strip(tile.to_channels(tile.by_slot(dlogits * tile.heads.width**-0.5)))
    refs.scratch[0][...] = (wide * k).sum(axis=1)
    return _add_to_rows(tile, refs, carry)


def _sender_side(tile: Tile, refs: Any, carry: Any) -> Any:
    """Add a tile to the gradients of its keys and values."""
    lanes = tile.heads.lanes
    q, dout = (tile.by_strip(x) for x in unpack(tile.far, lanes))
    k, v = (x[:, None] for x in unpack(tile.near, lanes))
    lse, delta = (tile.by_strip(x) for x in unpack_pair(tile.far))
    kept, dlogits = _gradients(tile, q * k, dout * v, lse, delta)
    real = tile.real(lanes)
    q, dout = jnp.where(real, q, 0.0), jnp.where(real, dout, 0.0)
    wide = tile.by_strip(tile.to_channels(tile.by_slot(dlogits * tile.heads.width**-0.5)))
    refs.scratch[0][...] = (wide * q).sum(axis=1)
    wide = tile.by_strip(tile.to_channels(tile.by_slot(kept)))
    refs.scratch[1][...] = (wide * dout).sum(axis=1)
    return _add_to_rows(tile, refs, carry)


def _gradients(
    tile: Tile, qk: jax.Array, dout_v: jax.Array, lse: jax.Array, delta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Kept weight of each slot, and gradient of its logit, from products channel by channel."""
    logits = tile.by_strip(tile.sum_of_heads(tile.by_slot(qk))) * tile.heads.width**-0.5
    logits += tile.bias()
    dweights = tile.by_strip(tile.sum_of_heads(tile.by_slot(dout_v)))
    # Lanes past the last head hold other numbers in `lse` and `delta`.
    a_head = lax.broadcasted_iota(jnp.int32, logits.shape, 2) < tile.heads.count
    real = tile.real(LANES) & a_head & ~(logits <= NOTHING)
    weights = jnp.where(real, jnp.exp(logits - lse), 0.0)
    keep = tile.keep()
    dlogits = jnp.where(real, weights * (dweights * keep - delta), 0.0)
    return weights * keep, dlogits


def _add_to_rows(tile: Tile, refs: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Sum the results of the strips of each row."""

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

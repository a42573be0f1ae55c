"""Attention over edges in plain XLA: the reference, and the fallback on every platform.

Works on dense tiles of rows (`tiling.py`), a bounded chunk at a time: temporary memory is that of
one result per tile, which is per node and per 64 edges of a hub. Nothing is scattered, and results
are the same from run to run. The backward pass recomputes the softmax from `lse`; dK and dV are
gathered over the edges sorted by sender.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.segment_attention.tiling import map_tiles, merge_into_rows
from pallas_kernels.segment_attention.types import (
    NOTHING,
    Dropout,
    Edges,
    Partial,
    Tilings,
    keep_scale,
    merge_axis,
)


def forward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    dropout: Dropout | None = None,
) -> Partial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised."""
    edge_data = EdgeData(edges, bias_eh, dropout, q_rhd.shape[1])

    def of_tile(rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array) -> Partial:
        real_tw1, senders_tw, positions_tw = slots(starts_t, senders_tw)
        logits_twh = dot("thd,twhd->twh", q_rhd[rows_t], k_shd[senders_tw]) * _scale(q_rhd)
        logits_twh += edge_data.bias(positions_tw)
        # Comparisons written so that a NaN stays one: it must reach the guard of the training.
        logits_twh = jnp.where(real_tw1 & ~(logits_twh < NOTHING), logits_twh, NOTHING)
        max_th = logits_twh.max(axis=1)
        weights_twh = jnp.where(logits_twh <= NOTHING, 0.0, jnp.exp(logits_twh - max_th[:, None]))
        kept_twh = weights_twh * edge_data.keep(positions_tw)
        values_thd = dot("twh,twhd->thd", kept_twh, v_shd[senders_tw])
        return Partial(max_th, weights_twh.sum(axis=1), values_thd)

    by_receiver = tilings_of(edges).by_receiver
    partials = map_tiles(by_receiver, of_tile)
    return merge_into_rows(by_receiver, partials, merge_axis, Partial(NOTHING, 0.0, 0.0))  # pyright: ignore[reportArgumentType]


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
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    heads, scale = q_rhd.shape[1], _scale(q_rhd)
    edge_data = EdgeData(edges, bias_eh, dropout, heads)
    dout_rhd = dout_rhd.astype(jnp.float32)
    # sum_j p_ij (dout_i . v_j): what the softmax subtracts from every edge's gradient
    delta_rh = (dout_rhd * out_rhd).sum(axis=-1)

    def gradients(
        logits_twh: jax.Array,
        dweights_twh: jax.Array,
        positions_tw: jax.Array,
        real_tw1: jax.Array,
        lse: jax.Array,
        delta: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """Kept weight of each edge, and gradient of its logit."""
        logits_twh = logits_twh * scale + edge_data.bias(positions_tw)
        weights_twh = jnp.where(real_tw1 & ~(logits_twh <= NOTHING), jnp.exp(logits_twh - lse), 0.0)
        keep_twh = edge_data.keep(positions_tw)
        return weights_twh * keep_twh, weights_twh * (dweights_twh * keep_twh - delta)

    def receiver_side(rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array) -> Any:
        real_tw1, senders_tw, positions_tw = slots(starts_t, senders_tw)
        k_twhd = k_shd[senders_tw]
        _, dlogits_twh = gradients(
            dot("thd,twhd->twh", q_rhd[rows_t], k_twhd),
            dot("thd,twhd->twh", dout_rhd[rows_t], v_shd[senders_tw]),
            positions_tw,
            real_tw1,
            lse_rh[rows_t][:, None],
            delta_rh[rows_t][:, None],
        )
        dq_thd = dot("twh,twhd->thd", dlogits_twh, k_twhd) * scale
        return (dq_thd, dlogits_twh) if bias_eh is not None else (dq_thd,)

    def sender_side(rows_t: jax.Array, starts_t: jax.Array, receivers_tw: jax.Array) -> Any:
        real_tw1, receivers_tw, positions_tw = slots(starts_t, receivers_tw)
        q_twhd, dout_twhd = q_rhd[receivers_tw], dout_rhd[receivers_tw]
        kept_twh, dlogits_twh = gradients(
            dot("thd,twhd->twh", k_shd[rows_t], q_twhd),
            dot("thd,twhd->twh", v_shd[rows_t], dout_twhd),
            at_positions(edges.sender_order_e, positions_tw) if edge_data.needed else positions_tw,
            real_tw1,
            lse_rh[receivers_tw],
            delta_rh[receivers_tw],
        )
        dk_thd = dot("twh,twhd->thd", dlogits_twh, q_twhd) * scale
        return dk_thd, dot("twh,twhd->thd", kept_twh, dout_twhd)

    # The gradients of logits are as many as the edges: kept only where they are asked for.
    tilings = tilings_of(edges)
    dq_and_dlogits = map_tiles(tilings.by_receiver, receiver_side)
    dq_thd = [dq for dq, *_ in dq_and_dlogits]
    dq_rhd = merge_into_rows(tilings.by_receiver, dq_thd, sum_axis, 0.0)
    dk_and_dv = map_tiles(tilings.by_sender, sender_side)
    dk_shd, dv_shd = merge_into_rows(tilings.by_sender, dk_and_dv, sum_axis, (0.0, 0.0))
    dbias_eh = None
    if bias_eh is not None:
        by_slot = jnp.concatenate([dlogits.reshape(-1, heads) for _, dlogits in dq_and_dlogits])
        dbias_eh = at_positions(by_slot, tilings.slot_e).astype(bias_eh.dtype)
    return (
        dq_rhd.astype(q_rhd.dtype),
        dk_shd.astype(k_shd.dtype),
        dv_shd.astype(v_shd.dtype),
        dbias_eh,
    )


def tilings_of(edges: Edges) -> Tilings:
    """The tiles, which `build_edges` makes on request."""
    if edges.tilings is None:
        raise ValueError('the xla back end works on tiles: build_edges(..., layouts=["tiles"])')
    return edges.tilings


class EdgeData:
    """What is known of single edges, looked up by their position in receiver order."""

    def __init__(
        self, edges: Edges, bias_eh: jax.Array | None, dropout: Dropout | None, heads: int
    ):
        self._edges, self._bias_eh, self._heads = edges, bias_eh, heads
        self._dropout = dropout if dropout is not None and dropout.rate > 0 else None
        self.needed = bias_eh is not None or self._dropout is not None

    def bias(self, positions: jax.Array) -> jax.Array | float:
        """The bias of edges."""
        if self._bias_eh is None:
            return 0.0
        return at_positions(self._bias_eh, positions).astype(jnp.float32)

    def keep(self, positions: jax.Array) -> jax.Array | float:
        """Dropout's factor of edges."""
        if self._dropout is None:
            return 1.0
        return keep_scale(
            self._dropout, at_positions(self._edges.edge_ids_e, positions), self._heads
        )


def slots(starts_t: jax.Array, columns_tw: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which slots of a tile hold an edge, the other end of each, and its position."""
    real_tw1 = (columns_tw >= 0)[..., None]
    positions_tw = starts_t[:, None] + jnp.arange(columns_tw.shape[1], dtype=starts_t.dtype)
    return real_tw1, jnp.maximum(columns_tw, 0), positions_tw


def at_positions(array_e: Any, positions: jax.Array) -> jax.Array:
    """Look up edges or slots; what is past the last one belongs to padding and reads as 0."""
    if not array_e.shape[0]:
        return jnp.zeros((*positions.shape, *array_e.shape[1:]), array_e.dtype)
    return jnp.asarray(array_e).at[positions].get(mode="fill", fill_value=0)


def dot(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """A sum of products in float32."""
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)


def _scale(q_rhd: jax.Array) -> float:
    return q_rhd.shape[-1] ** -0.5


def sum_axis(parts: Any) -> Any:
    """Merge sums stacked along axis 1."""
    return jax.tree.map(lambda x: x.sum(axis=1), parts)

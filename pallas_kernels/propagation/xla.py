"""The passes of propagation in plain XLA: the reference, and what runs on GPUs and TPUs.

Over dense tiles of rows (`tiling.py`), as `passes/xla.py`, on GPUs `in_place` (`tile_sums.py`).
The gradients of the weights are scattered from the order of the senders' tiles to that of the
edges, each to a place of its own, once for all rounds.
"""

from __future__ import annotations

from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout, keep_scale
from pallas_kernels.edges.edges import Edges
from pallas_kernels.edges.tile_sums import reduce_tiles
from pallas_kernels.edges.tiling import Tiling
from pallas_kernels.passes.xla import at_positions, slots, tilings_of
from pallas_kernels.propagation.passes import PropagationPasses
from pallas_kernels.reductions import NOTHING, SOFTMAX, SoftmaxPartial, sum_axis


def softmax_weights(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None,
    dropout: Dropout,
    *,
    in_place: bool = False,
) -> jax.Array:
    """Weights of all edges, negative where dropped."""
    heads, scale = q_rhd.shape[1], q_rhd.shape[2] ** -0.5
    tilings = tilings_of(edges)

    def logits_of_tile(
        rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array
    ) -> tuple[SoftmaxPartial, jax.Array, tuple[()]]:
        real_tw, senders_tw, positions_tw = slots(starts_t, senders_tw)
        logits_twh = dot("thd,twhd->twh", q_rhd[rows_t], k_shd[senders_tw]) * scale
        if bias_eh is not None:
            logits_twh += at_positions(bias_eh, positions_tw).astype(jnp.float32)
        # Comparisons written so that a NaN stays one: it must reach the guard of the training.
        logits_twh = jnp.where(real_tw[..., None] & ~(logits_twh < NOTHING), logits_twh, NOTHING)
        max_th = logits_twh.max(axis=1)
        weights_twh = jnp.where(logits_twh <= NOTHING, 0.0, jnp.exp(logits_twh - max_th[:, None]))
        no_values_th0 = jnp.zeros((*max_th.shape, 0))
        return SoftmaxPartial(max_th, weights_twh.sum(axis=1), no_values_th0), logits_twh, ()

    how = (SOFTMAX.merge_axis, SOFTMAX.nothing)
    whole, logits, _ = reduce_tiles(tilings.by_receiver, logits_of_tile, *how, in_place=in_place)
    share_rh = 1.0 / jnp.where(whole.sum_rh == 0, 1.0, whole.sum_rh)
    by_slot = []
    for tiles, logits_twh in zip(tilings.by_receiver.tiles, logits, strict=True):
        rows_t1 = jnp.asarray(tiles.rows_ct).reshape(-1, 1)
        weights_twh = jnp.exp(logits_twh - whole.max_rh[rows_t1]) * share_rh[rows_t1]
        weights_twh = jnp.where(logits_twh <= NOTHING, 0.0, weights_twh)
        by_slot.append(weights_twh.reshape(-1, heads))
    weights_eh = at_positions(jnp.concatenate(by_slot), tilings.slot_e)
    if not dropout.rate:
        return weights_eh
    dropped_eh = keep_scale(dropout, jnp.asarray(edges.edge_ids_e), heads) == 0
    return jnp.where(dropped_eh, -weights_eh, weights_eh)


def weighted_sum(
    weights_eh: jax.Array,
    x_shd: jax.Array,
    edges: Edges,
    factor: float,
    start_rhd: jax.Array | None = None,
    restart: float = 0.0,
    *,
    in_place: bool = False,
) -> jax.Array:
    """Sum over each receiver's edges, times a factor, plus a share of `start_rhd`."""
    sum_rhd = _sum_rows(tilings_of(edges).by_receiver, weights_eh, x_shd, in_place) * factor
    return sum_rhd if start_rhd is None else sum_rhd + restart * start_rhd


def sum_by_sender(
    weights_by_sender_eh: jax.Array,
    y_rhd: jax.Array,
    edges: Edges,
    factor: float,
    *,
    in_place: bool = False,
) -> jax.Array:
    """Sum over each sender's edges, times a factor."""
    return _sum_rows(tilings_of(edges).by_sender, weights_by_sender_eh, y_rhd, in_place) * factor


def _sum_rows(tiling: Tiling, weights_eh: jax.Array, x_nhd: jax.Array, in_place: bool) -> jax.Array:
    def of_tile(rows_t: jax.Array, starts_t: jax.Array, columns_tw: jax.Array) -> Any:
        weights_twh, columns_tw = _weights_of_tile(weights_eh, starts_t, columns_tw)
        return dot("twh,twhd->thd", weights_twh, x_nhd[columns_tw]), (), ()

    return reduce_tiles(tiling, of_tile, sum_axis, 0.0, in_place=in_place)[0]


def _weights_of_tile(
    weights_eh: jax.Array, starts_t: jax.Array, columns_tw: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Weights of the slots of a tile, zero where there is no edge, and the far ends of all."""
    real_tw, columns_tw, positions_tw = slots(starts_t, columns_tw)
    return jnp.where(real_tw[..., None], at_positions(weights_eh, positions_tw), 0.0), columns_tw


def to_sender_order(weights_eh: jax.Array, edges: Edges) -> jax.Array:
    """The same numbers in the order of the edges by sender."""
    return at_positions(weights_eh, jnp.asarray(edges.sender_order_e))


def no_dots(edges: Edges, heads: int) -> list[jax.Array]:
    """Nothing yet, for every slot."""
    return [
        jnp.zeros((tiles.num_tiles, tiles.columns_ctw.shape[2], heads), jnp.float32)
        for tiles in tilings_of(edges).by_sender.tiles
    ]


def sum_and_dots(
    weights_by_sender_eh: jax.Array,
    x_shd: jax.Array,
    y_rhd: jax.Array,
    edges: Edges,
    factor: float,
    dots: list[jax.Array],
    *,
    in_place: bool = False,
) -> tuple[jax.Array, list[jax.Array]]:
    """`sum_by_sender` of y, and for each edge the product of its ends added to `dots`, by slot."""
    tiling = tilings_of(edges).by_sender

    def of_tile(rows_t: jax.Array, starts_t: jax.Array, receivers_tw: jax.Array) -> Any:
        weights_twh, receivers_tw = _weights_of_tile(weights_by_sender_eh, starts_t, receivers_tw)
        y_twhd = y_rhd[receivers_tw]
        sums_thd = dot("twh,twhd->thd", weights_twh, y_twhd)
        return sums_thd, dot("thd,twhd->twh", x_shd[rows_t], y_twhd), ()

    sums_shd, products, _ = reduce_tiles(tiling, of_tile, sum_axis, 0.0, in_place=in_place)
    added = [before + more for before, more in zip(dots, products, strict=True)]
    return sums_shd * factor, added


def softmax_gradient(
    weights_eh: jax.Array,
    dots: list[jax.Array],
    edges: Edges,
    rate: float,
    factor: float,
    *,
    in_place: bool = False,
) -> jax.Array:
    """Gradients of the logits from those of the weights, which are `dots` times a factor."""
    heads, tilings = weights_eh.shape[1], tilings_of(edges)
    dweights_eh = _from_senders_slots(dots, edges) * (factor / (1.0 - rate))
    left_eh = jnp.where(weights_eh < 0, 0.0, weights_eh)
    dweights_eh = jnp.where(weights_eh < 0, 0.0, dweights_eh)

    def sum_of_tile(rows_t: jax.Array, starts_t: jax.Array, senders_tw: jax.Array) -> Any:
        products_twh, _ = _weights_of_tile(left_eh * dweights_eh, starts_t, senders_tw)
        return products_twh.sum(axis=1), (), ()

    by_receiver = tilings.by_receiver
    sums_rh, _, _ = reduce_tiles(by_receiver, sum_of_tile, sum_axis, 0.0, in_place=in_place)
    by_slot = [
        jnp.broadcast_to(
            sums_rh[jnp.asarray(tiles.rows_ct).reshape(-1, 1)],
            (tiles.num_tiles, tiles.columns_ctw.shape[2], heads),
        ).reshape(-1, heads)
        for tiles in by_receiver.tiles
    ]
    sums_eh = at_positions(jnp.concatenate(by_slot), tilings.slot_e)
    return jnp.abs(weights_eh) * (dweights_eh - sums_eh)


def _from_senders_slots(dots: list[jax.Array], edges: Edges) -> jax.Array:
    """From the slots of the tiles by sender to receiver order."""
    heads = dots[0].shape[-1]
    numbers_eh = jnp.zeros((edges.num_edges, heads), jnp.float32)
    if not edges.num_edges:
        return numbers_eh
    order_e = jnp.asarray(edges.sender_order_e)
    for tiles, dots_twh in zip(tilings_of(edges).by_sender.tiles, dots, strict=True):
        width = tiles.columns_ctw.shape[2]
        real_tw, _, positions_tw = slots(
            jnp.asarray(tiles.starts_ct).reshape(-1),
            jnp.asarray(tiles.columns_ctw).reshape(-1, width),
        )
        past_the_last = edges.num_edges
        to_tw = jnp.where(real_tw, at_positions(order_e, positions_tw), past_the_last)
        numbers_eh = numbers_eh.at[to_tw].set(dots_twh, mode="drop")
    return numbers_eh


def passes(*, in_place: bool) -> PropagationPasses:
    """All of them, with rows brought together in one way or the other."""
    return PropagationPasses(
        bind(softmax_weights, in_place=in_place),
        bind(weighted_sum, in_place=in_place),
        to_sender_order,
        bind(sum_by_sender, in_place=in_place),
        no_dots,
        bind(sum_and_dots, in_place=in_place),
        bind(softmax_gradient, in_place=in_place),
        needs=("tiles",),
    )


PASSES = passes(in_place=False)
PASSES_IN_PLACE = passes(in_place=True)


def dot(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """A sum of products in float32."""
    return jnp.einsum(subscripts, a, b, preferred_element_type=jnp.float32)

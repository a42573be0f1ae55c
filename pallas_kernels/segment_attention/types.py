"""What every attention back end shares: the edges, the partial softmax, and dropout.

A *partial* is the un-normalised softmax of a row over some of its edges. Partials merge
associatively, so a row may be split over tiles, chunks, devices or rotations of a ring and still
give the same result (Rabe and Staats 2021, Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.segment_attention.pieces import RowPieces, cut_rows
from pallas_kernels.segment_attention.strips import Strips, strips_of_rows
from pallas_kernels.segment_attention.tiling import Tiling, slots_of_edges, tile_rows

# The maximum over no edges at all. Finite, so that differences of two of them are not NaN.
NOTHING = float(np.finfo(np.float32).min) / 2

# By how much the heads of the hash that draws dropout are apart.
HEAD_STEP = np.uint32(0x9E3779B9)

# What a back end may ask for beyond the edges in both orders.
Layout = Literal["tiles", "pieces", "strips"]
LAYOUTS: tuple[Layout, ...] = ("tiles", "pieces", "strips")


class Partial(NamedTuple):
    """Softmax over some edges of each row: largest logit, sum of weights, weighted values."""

    max_rh: jax.Array
    sum_rh: jax.Array
    acc_rhd: jax.Array


class Dropout(NamedTuple):
    """Attention dropout: which share of the (edge, head) pairs to drop, and which draw of them."""

    rate: float
    seed: jax.Array | int

    def from_head(self, first: jax.Array | int) -> Dropout:
        """The same draw for some of the heads: the first of them is number `first`."""
        shift = jnp.asarray(first, jnp.uint32) * HEAD_STEP
        return Dropout(self.rate, jnp.asarray(self.seed, jnp.uint32) + shift)


class TileWidths(NamedTuple):
    """Widths to tile in, where several lists of edges have to agree; None: those that suit."""

    by_receiver: Sequence[int] | None
    by_sender: Sequence[int] | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tilings:
    """The edges as dense tiles, for back ends that cannot walk rows of any length."""

    by_receiver: Tiling  # rows are receivers, columns are senders
    by_sender: Tiling  # rows are senders, columns are receivers
    slot_e: Any  # int32: the slot of `by_receiver` that holds the edge; past the last: padding


@dataclass(frozen=True)
class PropagationPasses:
    """What propagation (`propagation.py`) is made of, as one back end computes it.

    Arrays [edges, heads] are in receiver order, or in sender order where that is said. The weights
    of a softmax are negative where dropout takes them away: their size is what the gradient needs.
    """

    softmax_weights: Callable[..., jax.Array]  # (q, k, edges, bias, dropout) -> weights
    weighted_sum: Callable[..., jax.Array]  # (weights, x, edges, factor, start, restart) -> rows
    to_sender_order: Callable[..., jax.Array]  # (weights, edges) -> weights in sender order
    sum_by_sender: Callable[..., jax.Array]  # (weights in sender order, y, edges, factor) -> rows
    no_dots: Callable[..., Any]  # (edges, heads) -> dots, all zero
    # (weights in sender order, x, y, edges, factor, dots) -> rows, dots
    sum_and_dots: Callable[..., tuple[jax.Array, Any]]
    softmax_gradient: Callable[..., jax.Array]  # (weights, dots, edges, rate, factor) -> dlogits
    layouts: tuple[Layout, ...]  # of the edges, see `build_edges`


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EdgePieces:
    """Ranges of edges of bounded length, for back ends that walk rows but balance their work."""

    by_receiver: RowPieces
    by_sender: RowPieces


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StripPairs:
    """The edges as strips of eight, for the back end of the TPU."""

    by_receiver: Strips  # rows are receivers, columns are senders
    by_sender: Strips  # rows are senders, columns are receivers
    slot_e: Any  # int32: the slot of `by_receiver` that holds the edge; past the last: padding


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Edges:
    """Edges sorted by receiver, and the same edges sorted by sender.

    `build_edges` gives them as numpy arrays on the host; where they go is the caller's choice.
    Position e of `senders_e`, `edge_ids_e` and of a bias is the e-th edge in receiver order. An
    edge's id is its number in the whole graph: dropout depends on it, so that however the edges
    are split over devices the same ones are dropped. Edges at and after position `offsets_r[-1]`
    are padding: they are in no row, and what their bias is does not matter.
    """

    offsets_r: Any  # int32 [receivers + 1]: receiver r has positions offsets[r]:offsets[r + 1]
    senders_e: Any  # int32
    edge_ids_e: Any  # uint32
    sender_offsets_s: Any  # int32 [senders + 1], in sender order
    receivers_by_sender_e: Any  # int32, in sender order
    sender_order_e: Any  # int32: position, in receiver order, of the e-th edge in sender order
    tilings: Tilings | None = None
    pieces: EdgePieces | None = None
    strips: StripPairs | None = None

    @property
    def num_edges(self) -> int:
        """Number of edges, padding included."""
        return self.senders_e.shape[0]


def build_edges(
    senders_e: np.ndarray,
    receivers_e: np.ndarray,
    *,
    num_senders: int,
    num_receivers: int,
    edge_ids_e: np.ndarray | None = None,
    layouts: Collection[Layout] = LAYOUTS,
    tile_widths: TileWidths | None = None,
) -> Edges:
    """Lay out edges, which must come sorted by receiver, for the attention kernels (host side).

    `layouts` are the further ones to add: `Backend.layouts` says which a back end works on. The
    edges of several devices, which need equal shapes, are for `build_stacked_edges`.
    """
    count = len(receivers_e)
    if len(senders_e) != count:
        raise ValueError(f"one sender for each of {count} receivers; found {len(senders_e)}")
    for name, array, size in (
        ("senders_e", senders_e, num_senders),
        ("receivers_e", receivers_e, num_receivers),
    ):
        if count and not (array.min() >= 0 and array.max() < size):
            raise ValueError(f"{name}: numbers are in 0..{size - 1}")
    if (receivers_e[1:] < receivers_e[:-1]).any():
        raise ValueError("receivers_e: edges come sorted by receiver")
    if count >= 2**31:
        raise ValueError(f"one device holds fewer than 2^31 edges; found {count}: use more devices")
    order_e = np.argsort(senders_e, kind="stable").astype(np.int32)
    ids_e = np.arange(count) if edge_ids_e is None else edge_ids_e
    tilings = pieces = strips = None
    by_sender_e = (senders_e[order_e], receivers_e[order_e])
    if "tiles" in layouts:
        widths = tile_widths or TileWidths(None, None)
        by_receiver = tile_rows(receivers_e, senders_e, num_receivers, widths.by_receiver)
        by_sender = tile_rows(*by_sender_e, num_senders, widths.by_sender)
        tilings = Tilings(by_receiver, by_sender, slots_of_edges(by_receiver, count))
    offsets_r = _offsets(receivers_e, num_receivers)
    sender_offsets_s = _offsets(senders_e, num_senders)
    if "pieces" in layouts:
        pieces = EdgePieces(cut_rows(offsets_r), cut_rows(sender_offsets_s))
    if "strips" in layouts:
        by_receiver, slot_e = strips_of_rows(
            receivers_e, senders_e, np.arange(count), ids_e, num_receivers
        )
        by_sender, _ = strips_of_rows(*by_sender_e, order_e, ids_e[order_e], num_senders)
        strips = StripPairs(by_receiver, by_sender, slot_e)
    return Edges(
        offsets_r=offsets_r,
        senders_e=senders_e.astype(np.int32),
        edge_ids_e=ids_e.astype(np.uint32),
        sender_offsets_s=sender_offsets_s,
        receivers_by_sender_e=by_sender_e[1].astype(np.int32),
        sender_order_e=order_e,
        tilings=tilings,
        pieces=pieces,
        strips=strips,
    )


def _offsets(rows_e: np.ndarray, num_rows: int) -> np.ndarray:
    offsets = np.zeros(num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows_e, minlength=num_rows), out=offsets[1:])
    return offsets


def merge(a: Partial, b: Partial) -> Partial:
    """The partial over the edges of both; associative and commutative."""
    max_rh = jnp.maximum(a.max_rh, b.max_rh)
    of_a, of_b = jnp.exp(a.max_rh - max_rh), jnp.exp(b.max_rh - max_rh)
    return Partial(
        max_rh,
        a.sum_rh * of_a + b.sum_rh * of_b,
        a.acc_rhd * of_a[..., None] + b.acc_rhd * of_b[..., None],
    )


def merge_axis(parts: Partial) -> Partial:
    """Merge partials stacked along axis 1."""
    max_rh = parts.max_rh.max(axis=1)
    scale = jnp.exp(parts.max_rh - max_rh[:, None])
    return Partial(
        max_rh, (parts.sum_rh * scale).sum(axis=1), (parts.acc_rhd * scale[..., None]).sum(axis=1)
    )


def finish(partial: Partial) -> jax.Array:
    """Normalise: the attention output. Rows without edges are zero."""
    return partial.acc_rhd / jnp.where(partial.sum_rh == 0, 1.0, partial.sum_rh)[..., None]


def log_sum_exp(partial: Partial) -> jax.Array:
    """Logarithm of each row's sum of weights, all the backward pass needs to redo the softmax."""
    some = partial.sum_rh > 0
    return jnp.where(some, partial.max_rh + jnp.log(jnp.where(some, partial.sum_rh, 1.0)), 0.0)


def keep_scale(dropout: Dropout, edge_ids: jax.Array, num_heads: int) -> jax.Array:
    """0 where (edge, head) is dropped and 1 / (1 - rate) where not, for ids of any shape.

    A hash and not a random stream: the same in every back end and under every split of the edges,
    and the backward pass draws it again instead of storing it.
    """
    return kept(dropout.rate, edge_ids[..., None], head_keys(dropout.seed, num_heads))


def head_keys(seed: jax.Array | int, num_heads: int) -> jax.Array:
    """The half of the hash that depends on the head and the seed, uint32 for each head."""
    heads = jnp.arange(num_heads, dtype=jnp.uint32) * HEAD_STEP
    return _scramble(heads + jnp.asarray(seed, jnp.uint32))


def kept(rate: float, edge_ids: jax.Array, keys: jax.Array) -> jax.Array:
    """The other half, for ids and keys of heads that broadcast; also for use within a kernel."""
    bits = _scramble(edge_ids.astype(jnp.uint32) ^ keys)
    keep = bits >= np.uint32(min(rate * 2.0**32, 2**32 - 1))
    return jnp.where(keep, np.float32(1.0 / (1.0 - rate)), np.float32(0.0))


def _scramble(x: jax.Array) -> jax.Array:
    """A bijection of 32-bit words in which every bit of the input reaches every bit out."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)

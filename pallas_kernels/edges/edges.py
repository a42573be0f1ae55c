"""What every attention back end shares: the edges, the partial softmax, and dropout.

A *partial* is the un-normalised softmax of a row over some of its edges. Partials merge
associatively, so a row may be split over tiles, chunks, devices or rotations of a ring and still
give the same result (Rabe and Staats 2021, Dao et al. 2022).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from pallas_kernels.edges import limits
from pallas_kernels.edges.pieces import RowPieces, cut_rows
from pallas_kernels.edges.strips import Strips, strips_of_rows
from pallas_kernels.edges.tiling import Tiling, slots_of_edges, tile_rows

# What a back end may ask for beyond the edges in both orders.
EdgeForm = Literal["tiles", "pieces", "strips"]
EDGE_FORMS: tuple[EdgeForm, ...] = ("tiles", "pieces", "strips")
CHUNK = 2**20  # edges


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
    senders_e: npt.ArrayLike,
    receivers_e: npt.ArrayLike,
    *,
    num_senders: int,
    num_receivers: int,
    edge_ids_e: np.ndarray | None = None,
    forms: Collection[EdgeForm] = EDGE_FORMS,
    tile_widths: TileWidths | None = None,
) -> Edges:
    """Lay out edges, which must come sorted by receiver, for the kernels (host side).

    `forms` are the further ones to add: `Kernel.needs` says which a kernel works on. The
    edges of several devices, which need equal shapes, are for `build_stacked_edges`.
    """
    senders_e, receivers_e = np.asarray(senders_e), np.asarray(receivers_e)
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
    limits.check_edges(count)
    limits.check_nodes(max(num_senders, num_receivers))
    order_e = _stable_order(senders_e)
    ids_e = np.arange(count, dtype=np.int32) if edge_ids_e is None else edge_ids_e
    tilings = pieces = strips = None
    receivers_by_sender_e = receivers_e[order_e]
    if "tiles" in forms:
        widths = tile_widths or TileWidths(None, None)
        by_receiver = tile_rows(receivers_e, senders_e, num_receivers, widths.by_receiver)
        columns_e = (senders_e[order_e], receivers_by_sender_e)
        by_sender = tile_rows(*columns_e, num_senders, widths.by_sender)
        tilings = Tilings(by_receiver, by_sender, slots_of_edges(by_receiver, count))
    offsets_r = _offsets(receivers_e, num_receivers)
    sender_offsets_s = _offsets(senders_e, num_senders)
    if "pieces" in forms:
        pieces = EdgePieces(
            cut_rows(offsets_r, senders_e), cut_rows(sender_offsets_s, receivers_by_sender_e)
        )
    if "strips" in forms:
        by_receiver, slot_e = strips_of_rows(
            receivers_e, senders_e, np.arange(count), ids_e, num_receivers
        )
        columns_e = (senders_e[order_e], receivers_by_sender_e)
        by_sender, _ = strips_of_rows(*columns_e, order_e, ids_e[order_e], num_senders)
        strips = StripPairs(by_receiver, by_sender, slot_e)
    return Edges(
        offsets_r=offsets_r,
        senders_e=senders_e.astype(np.int32, copy=False),
        edge_ids_e=_unsigned(ids_e),
        sender_offsets_s=sender_offsets_s,
        receivers_by_sender_e=receivers_by_sender_e.astype(np.int32, copy=False),
        sender_order_e=order_e,
        tilings=tilings,
        pieces=pieces,
        strips=strips,
    )


def _offsets(rows_e: np.ndarray, num_rows: int) -> np.ndarray:
    offsets = np.zeros(num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows_e, minlength=num_rows), out=offsets[1:])
    return offsets


def _stable_order(keys_e: np.ndarray) -> np.ndarray:
    """`argsort(keys, kind="stable")` of numbers below 2^31, three times as fast: int32.

    Key and position in one number, of which no two are equal, so that any sort will do.
    """
    both_e = keys_e.astype(np.int64)
    both_e <<= 32
    for first in range(0, len(both_e), CHUNK):  # all positions at once would be as large again
        some_e = both_e[first : first + CHUNK]
        some_e |= np.arange(first, first + len(some_e))
    both_e.sort()
    return both_e.astype(np.uint32).view(np.int32)  # the lower half


def _unsigned(ids_e: np.ndarray) -> np.ndarray:
    """Numbers of edges as uint32, without a copy where they have as many bits."""
    same = ids_e.dtype == np.int32
    return ids_e.view(np.uint32) if same else ids_e.astype(np.uint32, copy=False)

"""Edges of several devices in arrays of equal shapes, one leading axis of parts before the rest.

Under `shard_map` every device runs the same program, so what it is given has one shape everywhere:
that of the largest part. Choose `build_edges` for one device. The part with the most edges, the
longest hub or the most rows of some length sets the size of each array, so balance the edges first:
padding costs memory everywhere, and in tiles (`tiling.py`) arithmetic as well. The kernels that
walk rows skip it.

Padding edges come after those of the last row. No row, tile, piece or strip holds them, so they
add exactly nothing, whatever their bias; the gradient of that bias is zero.

A program that is compiled once may be given other edges later on, in the same shapes: build the
first ones with some `room`, and the others `like` them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from pallas_kernels.edges import limits
from pallas_kernels.edges.edges import (
    EDGE_FORMS,
    EdgeForm,
    EdgePieces,
    Edges,
    StripPairs,
    TileWidths,
    Tilings,
    build_edges,
)
from pallas_kernels.edges.pieces import Pieces, RowPieces
from pallas_kernels.edges.strips import Strips
from pallas_kernels.edges.tiling import (
    MERGE_FAN,
    WIDTHS,
    Tiles,
    Tiling,
    chunked_slots,
    in_chunks,
    slots_of_edges,
    useful_widths,
)


class EdgeList(NamedTuple):
    """The edges of one part, sorted by receiver, and their numbers in the whole graph."""

    senders_e: np.ndarray
    receivers_e: np.ndarray
    edge_ids_e: np.ndarray


class TooLargeError(ValueError):
    """Edges that do not fit into the shapes they were asked to have."""


def build_stacked_edges(
    parts: Sequence[EdgeList],
    *,
    num_senders: int,
    num_receivers: int,
    forms: Collection[EdgeForm] = EDGE_FORMS,
    num_edges: int | None = None,
    room: float = 1.0,
    like: Edges | None = None,
) -> Edges:
    """Lay out the edges of several parts with a leading axis of parts (host side).

    Part p is `jax.tree.map(lambda x: x[p], edges)`, with senders and receivers numbered within the
    part. All have as many edges as the largest, or `num_edges` if that is given.

    room: by how much the arrays of tiles, pieces and strips exceed what these edges need.
    like: edges of as many parts and rows, whose shapes these get; `TooLargeError` if they do not
          fit.
    """
    if not parts:
        raise ValueError("edges are stacked of at least one part; found none")
    counts_p = [len(part.receivers_e) for part in parts]
    largest = max(counts_p) if num_edges is None else num_edges
    if like is not None:
        largest = like.senders_e.shape[1]
    if max(counts_p) > largest:
        raise TooLargeError(
            f"num_edges holds the largest part: {max(counts_p)} edges; found {largest}"
        )
    limits.check_edges(largest)
    widths = None
    if like is not None and like.tilings is not None:
        widths = TileWidths(
            _widths_of(like.tilings.by_receiver), _widths_of(like.tilings.by_sender)
        )
    elif "tiles" in forms:
        widths = TileWidths(
            _widths([part.receivers_e for part in parts], num_receivers),
            _widths([part.senders_e for part in parts], num_senders),
        )
    built = [
        build_edges(
            part.senders_e,
            part.receivers_e,
            num_senders=num_senders,
            num_receivers=num_receivers,
            edge_ids_e=part.edge_ids_e,
            forms=forms,
            tile_widths=widths,
        )
        for part in parts
    ]

    def of_edges(field: Callable[[Edges], Any]) -> np.ndarray:
        return _stacked([field(edges) for edges in built], 0, largest)

    fit = _Fit(room, like)
    tilings = [edges.tilings for edges in built if edges.tilings is not None]
    pieces = [edges.pieces for edges in built if edges.pieces is not None]
    strips = [edges.strips for edges in built if edges.strips is not None]
    return Edges(
        offsets_r=np.stack([edges.offsets_r for edges in built]),
        senders_e=of_edges(lambda edges: edges.senders_e),
        edge_ids_e=of_edges(lambda edges: edges.edge_ids_e),
        sender_offsets_s=np.stack([edges.sender_offsets_s for edges in built]),
        receivers_by_sender_e=of_edges(lambda edges: edges.receivers_by_sender_e),
        sender_order_e=_stacked_orders([edges.sender_order_e for edges in built], largest),
        tilings=_stacked_tilings(tilings, largest, widths, fit) if tilings else None,
        pieces=_stacked_pieces(pieces, fit) if pieces else None,
        strips=_stacked_strips(strips, largest, fit) if strips else None,
    )


class _Fit(NamedTuple):
    """How large the arrays become that depend on more than the number of edges."""

    room: float
    like: Edges | None

    def size(self, needed: int, there: int | None) -> int:
        """What is `there` in the edges to be like; else what is needed, and some room."""
        if there is None:
            return needed if self.room == 1 else math.ceil(needed * self.room) + 1
        if needed > there:
            raise TooLargeError(f"edges fit the shapes they get: {needed} do not fit {there}")
        return there


def _stacked(arrays: Sequence[np.ndarray], fill: int, size: int | None = None) -> np.ndarray:
    """Arrays one after the other along a new axis, padded to the longest, or to `size`."""
    size = max(len(array) for array in arrays) if size is None else size
    if len(arrays) == 1 and len(arrays[0]) == size:
        return arrays[0][None]  # nothing to copy
    whole = np.full((len(arrays), size, *arrays[0].shape[1:]), fill, arrays[0].dtype)
    for row, array in zip(whole, arrays, strict=True):
        row[: len(array)] = array
    return whole


def _stacked_orders(orders: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Permutations one after the other; padding keeps its place, so that they stay such."""
    if len(orders) == 1 and len(orders[0]) == size:
        return orders[0][None]
    padded = (np.append(order, np.arange(len(order), size, dtype=np.int32)) for order in orders)
    return np.stack(list(padded))


def _stacked_pieces(parts: list[EdgePieces], fit: _Fit) -> EdgePieces:
    there = None if fit.like is None else fit.like.pieces
    return EdgePieces(
        _equal_pieces([p.by_receiver for p in parts], there and there.by_receiver, fit),
        _equal_pieces([p.by_sender for p in parts], there and there.by_sender, fit),
    )


def _equal_pieces(parts: list[RowPieces], there: RowPieces | None, fit: _Fit) -> RowPieces:
    """The pieces of all parts; those of padding are of no row."""

    def stack(arrays: list[np.ndarray], fill: int, like: Any) -> np.ndarray:
        needed = max(len(array) for array in arrays)
        return _stacked(arrays, fill, fit.size(needed, None if like is None else like.shape[1]))

    def pieces(given: list[Pieces], like: Pieces | None) -> Pieces:
        return Pieces(
            stack([p.rows_p for p in given], -1, like and like.rows_p),
            stack([p.starts_p for p in given], 0, like and like.starts_p),
            stack([p.ends_p for p in given], 0, like and like.ends_p),
        )

    return RowPieces(
        pieces([p.walked for p in parts], there and there.walked),
        stack([p.part_rows_q for p in parts], -1, there and there.part_rows_q),
        pieces([p.hubs for p in parts], there and there.hubs),
    )


def _stacked_strips(parts: list[StripPairs], num_edges: int, fit: _Fit) -> StripPairs:
    there = None if fit.like is None else fit.like.strips
    by_receiver = _equal_strips([p.by_receiver for p in parts], there and there.by_receiver, fit)
    by_sender = _equal_strips([p.by_sender for p in parts], there and there.by_sender, fit)
    past_the_last = by_receiver.ids_tw[0].size
    slot_e = _stacked([part.slot_e for part in parts], past_the_last, num_edges)
    return StripPairs(by_receiver, by_sender, slot_e)


def _equal_strips(parts: list[Strips], there: Strips | None, fit: _Fit) -> Strips:
    """The strips of all parts; tiles of padding stand where no block looks for any."""
    needed = max(len(part.ids_tw) for part in parts)
    tiles = fit.size(needed, None if there is None else there.ids_tw.shape[1])
    line = parts[0].lines_l.size // len(parts[0].ids_tw)
    limits.check_strips(tiles, line, parts[0].num_blocks)
    return Strips(
        np.stack([part.tile_starts_b for part in parts]),
        _stacked([part.lines_l for part in parts], 0, tiles * line),
        _stacked([part.positions_tw for part in parts], 0, tiles),
        _stacked([part.ids_tw for part in parts], 0, tiles),
        parts[0].block_rows,
    )


def _widths(rows_of_parts: list[np.ndarray], num_rows: int) -> list[int]:
    """What suits the rows of all parts together."""
    degrees = [np.bincount(rows_e, minlength=num_rows) for rows_e in rows_of_parts]
    return useful_widths(np.concatenate(degrees))


def _widths_of(stacked: Tiling) -> list[int]:
    """The widths of tiles that are stacked already, and the widest, which holds every row."""
    return sorted({*(tiles.columns_ctw.shape[-1] for tiles in stacked.tiles), WIDTHS[-1]})


def _stacked_tilings(
    parts: list[Tilings], num_edges: int, widths: TileWidths | None, fit: _Fit
) -> Tilings:
    there = None if fit.like is None else fit.like.tilings
    widths = widths or TileWidths(None, None)
    by_receiver = _equal_tilings(
        [part.by_receiver for part in parts], widths.by_receiver, there and there.by_receiver, fit
    )
    by_sender = _equal_tilings(
        [part.by_sender for part in parts], widths.by_sender, there and there.by_sender, fit
    )
    slots = sum(tiles.columns_ctw.size for tiles in by_receiver[0].tiles)
    slot_e = [
        slots_of_edges(tiling, len(part.slot_e))
        for tiling, part in zip(by_receiver, parts, strict=True)
    ]
    by_receiver, by_sender = (
        jax.tree.map(lambda *arrays: np.stack(arrays), *tilings)
        for tilings in (by_receiver, by_sender)
    )
    return Tilings(by_receiver, by_sender, _stacked(slot_e, slots, num_edges))


def _equal_tilings(
    tilings: list[Tiling], widths: Sequence[int] | None, there: Tiling | None, fit: _Fit
) -> list[Tiling]:
    """The same tilings, each with as many tiles and merges as the largest has."""
    by_width = [{t.columns_ctw.shape[2]: _unpadded(t) for t in tiling.tiles} for tiling in tilings]
    most = {
        width: max(len(some[width][0]) for some in by_width if width in some)
        for width in sorted({width for some in by_width for width in some})
    }
    levels = max(len(tiling.merges) for tiling in tilings)
    if there is None and fit.room > 1:  # also for widths and levels that other edges may need
        most = {width: most.get(width, 0) for width in widths or most}
        levels += 1
    if there is None:
        most = {width: fit.size(needed, None) for width, needed in most.items()}
    else:
        tiles_there = {t.columns_ctw.shape[3]: math.prod(t.rows_ct.shape[1:]) for t in there.tiles}
        for width, needed in most.items():
            fit.size(needed, tiles_there.get(width, 0))
        most, levels = tiles_there, fit.size(levels, len(there.merges))
    limits.check_tile_slots(sum(chunked_slots(max(1, count), w) for w, count in most.items()))
    merges_p = [_levels(tiling, levels) for tiling in tilings]
    most_merges = [
        fit.size(
            max(len(merges[level]) for merges in merges_p),
            None if there is None else there.merges[level].shape[1],
        )
        for level in range(levels)
    ]

    equal = []
    for tiling, some, merges in zip(tilings, by_width, merges_p, strict=True):
        nothing = {w: (np.zeros(0, int), np.zeros(0, int), np.zeros((0, w), int)) for w in most}
        tiles = tuple(in_chunks(*(nothing | some)[w], max(1, most[w])) for w in most)
        # Results are numbered through all tiles, then all levels of merging, padding included.
        old_tiles = {t.columns_ctw.shape[2]: t.num_tiles for t in tiling.tiles}
        old = [old_tiles.get(width, 0) for width in most] + [len(level) for level in merges]
        new = [t.num_tiles for t in tiles] + most_merges
        renumber = _Renumbering(old, new)
        padded = [
            _stacked([renumber(a)], -1, n)[0] for a, n in zip(merges, most_merges, strict=True)
        ]
        equal.append(Tiling(tiles, tuple(padded), renumber(tiling.result_r)))
    return equal


def _unpadded(tiles: Tiles) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, starts and columns of the tiles that hold an edge, which are the first ones."""
    columns_tw = tiles.columns_ctw.reshape(tiles.num_tiles, -1)
    count = int((columns_tw[:, 0] >= 0).sum())
    return (
        tiles.rows_ct.reshape(-1)[:count],
        tiles.starts_ct.reshape(-1)[:count],
        columns_tw[:count],
    )


def _levels(tiling: Tiling, levels: int) -> list[np.ndarray]:
    empty = np.zeros((0, MERGE_FAN), np.int32)
    return [*tiling.merges, *[empty] * (levels - len(tiling.merges))]


class _Renumbering:
    """From numbers through groups of some sizes to numbers through the same groups, grown.

    One past the last becomes one past the last; -1 stays.
    """

    def __init__(self, old: list[int], new: list[int]):
        self._old, self._new = (np.cumsum([0, *sizes]) for sizes in (old, new))

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        group = np.searchsorted(self._old, numbers, side="right") - 1
        moved = numbers - self._old[group] + self._new[group]
        return np.where(numbers < 0, -1, moved).astype(np.int32)

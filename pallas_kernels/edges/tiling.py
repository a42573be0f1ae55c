"""Rows of any length as dense tiles, so that reductions over edges need no scatter.

Each row of a CSR becomes one tile of the narrowest width that holds it; a row longer than the
widest (a hub) becomes several, whose results are merged (`tile_sums.py`). Work over a
tile is plain dense algebra on every platform, is deterministic, and a hub costs no more per edge
than anybody else. The price is padding: about a quarter more slots than edges on power-law graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pallas_kernels.edges import limits

WIDTHS = (4, 8, 16, 32, 64)
# Slots worked on at a time: bounds the temporary memory, and keeps it within the cache of a core.
CHUNK_SLOTS = 8192
# Results of a hub's tiles merged at a time. Small, since most hubs have only a few.
MERGE_FAN = 4


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """Tiles of one width, in chunks of equal size. Column -1 is padding."""

    rows_ct: Any  # int32: the row that each tile belongs to
    starts_ct: Any  # int32: position of its first edge
    columns_ctw: Any  # int32: the other end of each edge

    @property
    def num_tiles(self) -> int:
        """Number of tiles, padding included."""
        return self.rows_ct.shape[0] * self.rows_ct.shape[1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiling:
    """All the tiles of a CSR, and how their results come together as rows.

    Results are numbered: tiles in order, then what each level of `merges` makes of those before.
    `result_r` is the number that holds each row's final result, one past the last for empty rows.
    """

    tiles: tuple[Tiles, ...]
    merges: tuple[Any, ...]  # int32 [results, fan], -1 is padding
    result_r: Any  # int32

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.result_r.shape[0]


def tile_rows(
    rows_e: np.ndarray, columns_e: np.ndarray, num_rows: int, widths: Sequence[int] | None = None
) -> Tiling:
    """Tile edges that come sorted by row (host side), in `widths` or in those that suit them."""
    degrees_r = np.bincount(rows_e, minlength=num_rows)
    ends_r = np.cumsum(degrees_r)
    result_r = np.full(num_rows, -1, np.int64)
    tiles, count, shorter, slots = [], 0, 0, 0
    hubs = _Hubs(*(np.zeros(0, np.int64),) * 3)
    for width in useful_widths(degrees_r) if widths is None else widths:
        widest = width == WIDTHS[-1]
        rows = np.flatnonzero((degrees_r > shorter) & ((degrees_r <= width) | widest))
        shorter = width
        if not len(rows):
            continue
        per_row = -(-degrees_r[rows] // width)
        slots += chunked_slots(int(per_row.sum()), width)
        limits.check_tile_slots(slots)
        rows_t = np.repeat(rows, per_row)
        starts_t = (ends_r - degrees_r)[rows_t] + position_in_group(per_row) * width
        tiles.append(_chunked(rows_t, starts_t, ends_r[rows_t], columns_e, width))
        result_r[rows] = count + np.cumsum(per_row) - per_row
        if widest:
            hubs = _Hubs(rows, result_r[rows], per_row).still_in_pieces()
        count += tiles[-1].num_tiles
    if not tiles:  # no edges: one tile of padding, so that nothing below is a special case
        nowhere = np.zeros(1, np.int64)
        tiles.append(_chunked(nowhere, nowhere, nowhere, nowhere, WIDTHS[-1]))
        count = 1
    merges = []
    while len(hubs.rows):
        merges.append(hubs.fan_in())
        hubs = hubs.merged(count)
        result_r[hubs.rows] = hubs.first
        hubs = hubs.still_in_pieces()
        count += len(merges[-1])
    result_r[result_r < 0] = count
    return Tiling(tuple(tiles), tuple(merges), result_r.astype(np.int32))


def useful_widths(degrees_r: np.ndarray) -> list[int]:
    """The widths that save more slots than a chunk or two; every other one only costs compiling."""
    widths = [WIDTHS[-1]]
    spare = max(8192, 0.02 * degrees_r.sum())
    for width in reversed(WIDTHS[:-1]):
        shorter = ((degrees_r > 0) & (degrees_r <= width)).sum()
        if shorter * (widths[0] - width) > spare:
            widths.insert(0, width)
    return widths


def slots_of_edges(tiling: Tiling, num_edges: int) -> np.ndarray:
    """Where each edge stands among the slots of all tiles, for results that belong to an edge."""
    slot_e = np.zeros(num_edges, np.int32)
    base = 0
    for tiles in tiling.tiles:
        columns_tw = tiles.columns_ctw.reshape(tiles.num_tiles, -1)
        position_tw = tiles.starts_ct.reshape(-1, 1) + np.arange(columns_tw.shape[1])
        slot_tw = base + np.arange(columns_tw.size).reshape(columns_tw.shape)
        inside_tw = columns_tw >= 0
        slot_e[position_tw[inside_tw]] = slot_tw[inside_tw]
        base += columns_tw.size
    return slot_e


def position_in_group(sizes_g: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... for each group in turn, given how many each one has."""
    starts_g = np.cumsum(sizes_g) - sizes_g
    return np.arange(sizes_g.sum()) - np.repeat(starts_g, sizes_g)


def _chunked(
    rows_t: np.ndarray, starts_t: np.ndarray, ends_t: np.ndarray, columns_e: np.ndarray, width: int
) -> Tiles:
    position_tw = starts_t[:, None] + np.arange(width)
    inside_tw = position_tw < ends_t[:, None]
    columns_tw = np.where(inside_tw, columns_e[np.minimum(position_tw, len(columns_e) - 1)], -1)
    return in_chunks(rows_t, starts_t, columns_tw, len(rows_t))


def in_chunks(rows_t: np.ndarray, starts_t: np.ndarray, columns_tw: np.ndarray, most: int) -> Tiles:
    """Tiles in chunks, padded to what as many as `most` tiles of this width take."""
    chunks, per_chunk = _chunks(most, columns_tw.shape[1])

    def chunked(array: np.ndarray, fill: int) -> np.ndarray:
        padding = np.full((chunks * per_chunk - len(array), *array.shape[1:]), fill, np.int32)
        whole = np.concatenate([array.astype(np.int32), padding])
        return whole.reshape(chunks, per_chunk, *array.shape[1:])

    return Tiles(chunked(rows_t, 0), chunked(starts_t, 0), chunked(columns_tw, -1))


def chunked_slots(tiles: int, width: int) -> int:
    """Slots of so many tiles in chunks, padding included."""
    chunks, per_chunk = _chunks(tiles, width)
    return chunks * per_chunk * width


def _chunks(tiles: int, width: int) -> tuple[int, int]:
    """How many chunks, and tiles in each."""
    chunks = -(-tiles * width // CHUNK_SLOTS)
    return chunks, -(-tiles // chunks)


@dataclass(frozen=True)
class _Hubs:
    """Rows with results in several pieces: `pieces[i]` of them, numbered from `first[i]` on."""

    rows: np.ndarray
    first: np.ndarray
    pieces: np.ndarray

    def still_in_pieces(self) -> _Hubs:
        many = self.pieces > 1
        return _Hubs(self.rows[many], self.first[many], self.pieces[many])

    def fan_in(self) -> np.ndarray:
        groups = self._groups()
        start = np.repeat(self.first, groups) + position_in_group(groups) * MERGE_FAN
        end = np.repeat(self.first + self.pieces, groups)
        index = start[:, None] + np.arange(MERGE_FAN)
        return np.where(index < end[:, None], index, -1).astype(np.int32)

    def merged(self, count: int) -> _Hubs:
        groups = self._groups()
        return _Hubs(self.rows, count + np.cumsum(groups) - groups, groups)

    def _groups(self) -> np.ndarray:
        return -(-self.pieces // MERGE_FAN)

"""Rows of any length as pieces of bounded length, for kernels that walk edges themselves.

A piece is a range of one row's edges. A row of up to `PIECE_EDGES` edges, also an empty one, is one
piece; a longer one (a hub) is split into pieces of about equal length whose results are merged, so
that no program works much longer than the others. Costs three integers a row and four per
`PIECE_EDGES` edges of hubs; the edges themselves are not copied, unlike in `tiling.py`.

Pieces stand in classes of about equal length, longest first, that keep the order of the rows:
neighbours then take about equally long, and still find each other's columns in the cache. Where the
nodes are ordered for locality, the classes are those of `WINDOW` rows at a time, and pieces of hubs
stand in the window of the columns that they read; else those of all rows, which lets rows of
popular columns meet. Which of the two reads fewer distinct columns at a time is counted
(simulated for a cache of 40 MB in `experiments/attention_gpu_cache.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

# Long enough that the partial result of a piece (two rows of traffic) costs under 1 % of its edges,
# short enough that a program on a piece of a hub ends soon after those on everybody else's rows.
PIECE_EDGES = 128
# Rows that run at about the same time: more than a GPU has warps, and few enough to share columns.
WINDOW = 8192
# Edges whose columns are counted together: about what a cache holds the columns of.
STRETCH = 2**17
STRETCHES = 16
WORTH_WINDOWS = 0.95  # windows are of less equal lengths


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pieces:
    """Ranges of edges, each of one row. A row of -1 is padding: no edges, and no result."""

    rows_p: Any  # int32
    starts_p: Any  # int32
    ends_p: Any  # int32

    @property
    def count(self) -> int:
        """Number of pieces, padding included."""
        return self.rows_p.shape[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RowPieces:
    """All rows of a CSR in pieces: every row is either whole or a hub.

    Parts are the pieces of hubs, those of one hub next to each other.
    """

    walked: Pieces  # all pieces; the row of part q is given as -2 - q
    part_rows_q: Any  # int32: the row of each part; -1 is padding
    hubs: Pieces  # row of each hub, and the range of parts that it is in

    @property
    def parts(self) -> int:
        """Number of parts, padding included."""
        return self.part_rows_q.shape[0]


def cut_rows(
    offsets_r: np.ndarray, columns_e: np.ndarray, piece_edges: int = PIECE_EDGES
) -> RowPieces:
    """Cut the rows of a CSR with these offsets and columns into pieces (host side)."""
    offsets_r = offsets_r.astype(np.int64)
    degrees_r = np.diff(offsets_r)
    whole = np.flatnonzero(degrees_r <= piece_edges)
    hubs = np.flatnonzero(degrees_r > piece_edges)
    parts_u = -(-degrees_r[hubs] // piece_edges)
    last_u = np.cumsum(parts_u)
    rows_q = np.repeat(hubs, parts_u)
    # Part i of n of a row with d edges is the edges from d * i // n to d * (i + 1) // n.
    number_q = np.arange(len(rows_q)) - np.repeat(last_u - parts_u, parts_u)
    of_q, degrees_q = np.repeat(parts_u, parts_u), degrees_r[rows_q]
    starts_q = offsets_r[rows_q] + degrees_q * number_q // of_q
    ends_q = offsets_r[rows_q] + degrees_q * (number_q + 1) // of_q
    rows_p = np.concatenate([whole, -2 - np.arange(len(rows_q))])
    starts_p = np.concatenate([offsets_r[whole], starts_q])
    ends_p = np.concatenate([offsets_r[whole + 1], ends_q])
    place_p = np.concatenate([whole, columns_e[(starts_q + ends_q) // 2]])
    order_p = _walk(starts_p, ends_p, place_p, columns_e)
    return RowPieces(
        walked=_pieces(rows_p[order_p], starts_p[order_p], ends_p[order_p]),
        part_rows_q=rows_q.astype(np.int32),
        hubs=_pieces(hubs, last_u - parts_u, last_u),
    )


def _walk(
    starts_p: np.ndarray, ends_p: np.ndarray, place_p: np.ndarray, columns_e: np.ndarray
) -> np.ndarray:
    """The order of the pieces in which fewer distinct columns are read at a time."""
    # Half octaves: lengths of one class differ by less than half.
    lengths_p = ends_p - starts_p
    class_p = np.round(2 * np.log2(np.maximum(lengths_p, 0.5))).astype(np.int64)
    by_length = np.argsort(-class_p, kind="stable")
    if not lengths_p.sum() > STRETCH:
        return by_length
    by_window = by_length[np.argsort(place_p[by_length] // WINDOW, kind="stable")]
    read = [
        _distinct_columns(starts_p[order_p], lengths_p[order_p], columns_e)
        for order_p in (by_length, by_window)
    ]
    return by_window if read[1] < WORTH_WINDOWS * read[0] else by_length


def _distinct_columns(starts_p: np.ndarray, lengths_p: np.ndarray, columns_e: np.ndarray) -> int:
    """How many columns some stretches of edges read, in the order of these pieces."""
    last_p = np.cumsum(lengths_p)
    count = 0
    for first in np.linspace(0, last_p[-1] - STRETCH, STRETCHES).astype(np.int64):
        some = slice(*np.searchsorted(last_p, (first, first + STRETCH)))
        lengths, last = lengths_p[some], np.cumsum(lengths_p[some])
        edges = np.arange(lengths.sum()) + np.repeat(starts_p[some] - (last - lengths), lengths)
        count += len(np.unique(columns_e[edges]))
    return count


def _pieces(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Pieces:
    return Pieces(*(array.astype(np.int32) for array in (rows, starts, ends)))

"""Rows of any length as pieces of bounded length, for kernels that walk edges themselves.

A piece is a range of one row's edges. A row of up to `PIECE_EDGES` edges, also an empty one, is one
piece; a longer one (a hub) is split into pieces of about equal length whose results are merged, so
that no program works much longer than the others. Whole rows stand longest first, in classes of
about equal length that keep the order of the rows: neighbours then take about equally long, and
still find each other's senders in the cache. Costs three integers a row and three per
`PIECE_EDGES` edges of hubs; the edges themselves are not copied, unlike in `tiling.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

# Long enough that the partial result of a piece (two rows of traffic) costs under 1 % of its edges,
# short enough that a program on a piece of a hub ends soon after those on everybody else's rows.
PIECE_EDGES = 128


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
    """All rows of a CSR in pieces: every row is either whole or a hub."""

    whole: Pieces
    split: Pieces  # of hubs, those of one hub next to each other
    hubs: Pieces  # row of each hub, and the range of `split` that it is in


def cut_rows(offsets_r: np.ndarray, piece_edges: int = PIECE_EDGES) -> RowPieces:
    """Cut the rows of a CSR with these offsets into pieces (host side)."""
    offsets_r = offsets_r.astype(np.int64)
    degrees_r = np.diff(offsets_r)
    whole = np.flatnonzero(degrees_r <= piece_edges)
    whole = whole[np.argsort(-_length_class(degrees_r[whole]), kind="stable")]
    hubs = np.flatnonzero(degrees_r > piece_edges)
    pieces_u = -(-degrees_r[hubs] // piece_edges)
    last_u = np.cumsum(pieces_u)
    rows_p = np.repeat(hubs, pieces_u)
    # Piece i of n of a row with d edges is the edges from d * i // n to d * (i + 1) // n.
    number_p = np.arange(len(rows_p)) - np.repeat(last_u - pieces_u, pieces_u)
    of_p, degrees_p = np.repeat(pieces_u, pieces_u), degrees_r[rows_p]
    starts_p = offsets_r[rows_p] + degrees_p * number_p // of_p
    ends_p = offsets_r[rows_p] + degrees_p * (number_p + 1) // of_p
    return RowPieces(
        whole=_pieces(whole, offsets_r[whole], offsets_r[whole + 1]),
        split=_pieces(rows_p, starts_p, ends_p),
        hubs=_pieces(hubs, last_u - pieces_u, last_u),
    )


def _length_class(lengths: np.ndarray) -> np.ndarray:
    """Half octaves: lengths of one class differ by less than half."""
    return np.round(2 * np.log2(np.maximum(lengths, 0.5))).astype(np.int64)


def _pieces(rows: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Pieces:
    return Pieces(*(array.astype(np.int32) for array in (rows, starts, ends)))

"""Compressed rows: the edges grouped by one of their ends.

Grouping is a counting sort, linear in the edges: ten million edges take about half a second, and
6 bytes an edge beside the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class CSR:
    """Edges grouped by row: row i holds positions `offsets[i]:offsets[i + 1]`.

    `offsets` is int64, so more than 2^31 edges are representable. `edge_ids_e` says which edge of
    the graph stands at each position, so that per-edge data can follow. The arrays are read-only,
    since a graph builds them once and shares them.
    """

    offsets: np.ndarray
    neighbours_e: np.ndarray
    edge_ids_e: np.ndarray

    def __post_init__(self) -> None:
        for array in (self.offsets, self.neighbours_e, self.edge_ids_e):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False

    @property
    def degrees_n(self) -> np.ndarray:
        """Number of edges in each row."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Positions:
    """0, 1, 2 and so on as edge ids, where an edge's id is its position: never stored."""

    count: int

    @property
    def shape(self) -> tuple[int]:
        """[count]."""
        return (self.count,)

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers that are given."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, some: Any) -> np.ndarray:
        if isinstance(some, slice):
            return np.arange(*some.indices(self.count))
        chosen = np.asarray(some)
        if chosen.dtype == np.bool_:
            return np.flatnonzero(chosen)
        return np.where(chosen < 0, chosen + self.count, chosen).astype(np.int64)


def edge_ids(csr: CSR, some: Any) -> np.ndarray:
    """Which edges stand at some positions, a slice or a list, of a graph in memory or stored."""
    return np.asarray(csr.edge_ids_e[some])


def build_csr(rows_e: np.ndarray, neighbours_e: np.ndarray, num_rows: int) -> CSR:
    """Group edges by row, keeping the graph's order within a row."""
    offsets, edge_ids_e = _grouped(rows_e, num_rows)
    return CSR(offsets.astype(np.int64, copy=False), neighbours_e[edge_ids_e], edge_ids_e)


def stable_order(keys_e: np.ndarray, num_keys: int) -> np.ndarray:
    """`argsort(keys, kind="stable")` of integers in 0..num_keys-1, several times faster."""
    return _grouped(keys_e, num_keys)[1]


def stable_pair_order(first_e: np.ndarray, second_e: np.ndarray, num_keys: int) -> np.ndarray:
    """Order by `first_e`, then `second_e`, then position; both hold integers in 0..num_keys-1."""
    by_second = stable_order(second_e, num_keys)
    return by_second[stable_order(first_e[by_second], num_keys)]


def inverse_order(order: np.ndarray) -> np.ndarray:
    """Where each item of an order stands in it."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    return position


def _grouped(keys_e: np.ndarray, num_keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each key's stretch starts, and the positions of its members in ascending order.

    A matrix with one entry a column, in row `key`, changes from columns to rows by the counting
    sort we want, in compiled code; the entries' values do not matter.
    """
    count = len(keys_e)
    kind = np.int32 if max(count, num_keys) < 2**31 else np.int64
    starts = np.arange(count + 1, dtype=kind)
    entries = (np.zeros(count, np.int8), keys_e.astype(kind, copy=False), starts)
    rows = sp.csc_array(entries, shape=(num_keys, count)).tocsr()
    return rows.indptr, rows.indices

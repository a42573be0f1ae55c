"""Compressed rows: the edges grouped by one of their ends, in one pass of sorting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CSR:
    """Edges grouped by row: row i holds positions `offsets[i]:offsets[i + 1]`.

    `offsets` is int64, so more than 2^31 edges are representable. `edge_ids_e` says which edge of
    the graph stands at each position, so that per-edge data can follow.
    """

    offsets: np.ndarray
    neighbours_e: np.ndarray
    edge_ids_e: np.ndarray

    @property
    def degrees_n(self) -> np.ndarray:
        """Number of edges in each row."""
        return np.diff(self.offsets)


def build_csr(rows_e: np.ndarray, neighbours_e: np.ndarray, num_rows: int) -> CSR:
    """Group edges by row, keeping the graph's order within a row."""
    offsets = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows_e, minlength=num_rows), out=offsets[1:])
    edge_ids_e = stable_order(rows_e, num_rows)
    return CSR(offsets, neighbours_e[edge_ids_e], edge_ids_e)


def stable_order(keys_e: np.ndarray, num_keys: int) -> np.ndarray:
    """`argsort(keys, kind="stable")`, several times faster.

    Key and position share one int64, so that numpy's vectorised (unstable) sort can be used on
    plain values and equal keys still keep their order.
    """
    count = len(keys_e)
    position_bits = max(count - 1, 1).bit_length()
    if position_bits + max(num_keys - 1, 1).bit_length() > 63:
        return np.argsort(keys_e, kind="stable")
    packed = keys_e.astype(np.int64)
    packed <<= position_bits
    packed |= np.arange(count, dtype=np.int64)
    packed.sort()
    packed &= (1 << position_bits) - 1
    return packed.astype(np.int32) if count < 2**31 else packed

"""Offsets of rows, written while the sorted rows of edges come by."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gtjax.core.growing_array import GrowingArray

_BLOCK = 1 << 22


class OffsetsFile:
    """Where each row begins: int64 [rows + 1], known as soon as a later row has come by."""

    def __init__(self, path: Path, written: int = 0, edges: int = 0):
        """Start, or go on behind so many offsets and edges."""
        self.file, self.edges = GrowingArray(path, np.int64, rows=written), edges
        if not written:
            self.file.append(np.zeros(1, np.int64))

    @property
    def written(self) -> int:
        """How many offsets are final."""
        return self.file.rows

    def add(self, rows_e: np.ndarray) -> None:
        """The rows of the next edges, in ascending order, none before those that came already."""
        if len(rows_e):
            self._close(int(rows_e[-1]), rows_e)
            self.edges += len(rows_e)

    def close_rows(self, num_rows: int) -> None:
        """There are no more edges, and so many rows."""
        self._close(num_rows, np.zeros(0, np.int32))

    def _close(self, end: int, rows_e: np.ndarray) -> None:
        """Write where all rows before `end` end."""
        start = self.written - 1
        while start < end:
            stop = min(start + _BLOCK, end)
            first, last = np.searchsorted(rows_e, [start, stop])
            counts = np.bincount(rows_e[first:last] - start, minlength=stop - start)
            self.file.append(self.edges + first + np.cumsum(counts))
            start = stop

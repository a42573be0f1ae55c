"""Rows of features that stay on disk: int8 with a scale a row, or sparse; read as float32.

Features that are stored as float32 or float16 are mapped as they are and need nothing of this.
Indexing with a slice, a list of rows or a mask gives an ordinary array of those rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class ScaledRows:
    """Rows of int8 [N, F], each times its scale; without scales the values are what they are.

    With a scale, a value is off by at most 1/254 of its row's largest.
    """

    values_nf: np.ndarray
    scale_n: np.ndarray | None

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, F]."""
        return self.values_nf.shape

    @property
    def dtype(self) -> np.dtype:
        """Of the rows as they are given."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.values_nf)

    def __getitem__(self, some: Any) -> np.ndarray:
        rows_nf = self.values_nf[some].astype(np.float32)
        return rows_nf if self.scale_n is None else rows_nf * self.scale_n[some][..., None]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Row i holds columns `columns_v[offsets[i]:offsets[i + 1]]` with values `values_v`."""

    offsets: np.ndarray
    columns_v: np.ndarray
    values_v: np.ndarray
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, F]."""
        return (len(self), self.width)

    @property
    def dtype(self) -> np.dtype:
        """Of the rows as they are given."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, some: Any) -> np.ndarray:
        if isinstance(some, int | np.integer):
            return self[[some]][0]
        if isinstance(some, slice) and some.step in (None, 1):
            first, last, _ = some.indices(len(self))
            starts = self.offsets[first : max(first, last) + 1]
            counts = np.diff(starts)
            taken = slice(int(starts[0]), int(starts[-1]))
        else:
            rows = np.arange(len(self))[some] if isinstance(some, slice) else np.asarray(some)
            if rows.dtype == np.bool_:
                rows = np.flatnonzero(rows)
            rows = np.where(rows < 0, rows + len(self), rows).astype(np.int64)
            starts, counts = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
            ends = np.cumsum(counts)
            taken = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
                starts - (ends - counts), counts
            )
        dense_nf = np.zeros((len(counts), self.width), np.float32)
        row_v = np.repeat(np.arange(len(counts)), counts)
        # Entries stored twice add up, as in scipy.
        np.add.at(dense_nf, (row_v, self.columns_v[taken]), self.values_v[taken])
        return dense_nf


def scaled(rows_nf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as int8, and the scale of each."""
    rows_nf = rows_nf.astype(np.float32, copy=False)
    largest_n = np.abs(rows_nf).max(axis=1, initial=0)
    scale_n = (largest_n / 127).astype(np.float32)
    safe_n = np.where(scale_n > 0, scale_n, 1)
    return np.rint(rows_nf / safe_n[:, None]).astype(np.int8), scale_n

"""A sparse matrix as four arrays of an `.npz` (CSR): checked, then made dense or into edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import NpzArchive

_PARTS = ("data", "indices", "indptr", "shape")


@dataclass(frozen=True)
class CompressedRows:
    """Row i holds columns `indices[indptr[i]:indptr[i + 1]]` with values `data`."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    def dense(self, field: str, limits: Limits) -> np.ndarray:
        """The matrix as float32 [rows, columns]; entries stored twice add up."""
        from scipy.sparse import csr_matrix  # slow to import

        limits.check_bytes(field, 4 * self.shape[0] * self.shape[1])
        with np.errstate(over="ignore"):  # an overflow is reported as not finite by Graph
            data = self.data.astype(np.float32)
        # 64-bit positions: scipy would otherwise keep narrow types such as uint16 and overflow.
        indices, indptr = self.indices.astype(np.int64), self.indptr.astype(np.int64)
        return csr_matrix((data, indices, indptr), shape=self.shape).toarray()

    def row_numbers(self) -> np.ndarray:
        """The row of every stored entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.astype(np.int64)))


def has_compressed_rows(archive: NpzArchive, prefix: str) -> bool:
    """Whether any of the four arrays is there (so that a missing one is an error)."""
    return any(prefix + part in archive for part in _PARTS)


def read_compressed_rows(archive: NpzArchive, prefix: str, limits: Limits) -> CompressedRows:
    """Read `<prefix>data`, `indices`, `indptr` and `shape`, and check that they fit together."""
    shape = archive.array(prefix + "shape", ndim=(1,), kinds="iu")
    if shape.shape != (2,) or shape.min() < 0:
        raise GraphFormatError(prefix + "shape", "two sizes: rows and columns", shape.tolist())
    rows, columns = int(shape[0]), int(shape[1])
    indptr = archive.array(prefix + "indptr", ndim=(1,), kinds="iu")
    if len(indptr) != rows + 1:
        raise GraphFormatError(prefix + "indptr", f"{rows + 1} offsets, rows + 1", len(indptr))
    indices = archive.array(prefix + "indices", ndim=(1,), kinds="iu")
    data = archive.array(prefix + "data", ndim=(1,), kinds="biuf")
    if len(data) != len(indices):
        rule = f"one value for each of {len(indices)} indices"
        raise GraphFormatError(prefix + "data", rule, len(data))
    if int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        rule = f"offsets run from 0 to {len(indices)}, the number of indices"
        raise GraphFormatError(prefix + "indptr", rule, f"{indptr[0]} to {indptr[-1]}")
    if (indptr[1:] < indptr[:-1]).any():
        row = int(np.flatnonzero(indptr[1:] < indptr[:-1])[0])
        raise GraphFormatError(prefix + "indptr", "offsets never decrease", f"row {row}")
    if len(indices):
        for bad in (int(indices.min()), int(indices.max())):
            if not 0 <= bad < columns:
                rule = f"column numbers are in 0..{columns - 1}"
                raise GraphFormatError(prefix + "indices", rule, bad)
    limits.check_bytes(prefix + "indices", 8 * len(indices))
    return CompressedRows(data, indices, indptr, (rows, columns))

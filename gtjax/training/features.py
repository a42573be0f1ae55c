"""Scaling of node features, a few rows at a time, so that no second copy of all is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

ROWS = 1 << 14  # looked at together


def scaling(x_nf: np.ndarray, how: str) -> Callable[[np.ndarray], np.ndarray]:
    """What to do to any rows of the features: see `PrepareConfig.features`."""
    if how == "auto":
        how = "row" if _is_sparse(x_nf) else "standard"
    if how == "none" or not x_nf.size:
        return lambda rows: rows
    if how == "row":
        return _to_sum_one
    mean_f, std_f = _moments(x_nf)
    return lambda rows: ((rows - mean_f) / np.where(std_f > 0, std_f, 1)).astype(np.float32)


def scale_features(x_nf: np.ndarray, how: str) -> np.ndarray:
    """Scale rows to sum 1, or columns to zero mean and unit variance; see PrepareConfig."""
    return scaling(x_nf, how)(x_nf)


def _to_sum_one(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float32)
    total_n = np.abs(rows).sum(axis=1, keepdims=True)
    return rows / np.where(total_n > 0, total_n, 1)


def _is_sparse(x_nf: np.ndarray) -> bool:
    """Mostly zero and never negative, as bags of words are."""
    filled = 0
    for start in range(0, len(x_nf), ROWS):
        rows = x_nf[start : start + ROWS]
        if rows.size and bool(rows.min() < 0):
            return False
        filled += np.count_nonzero(rows)
    return bool(x_nf.size and filled < 0.5 * x_nf.size)


def _moments(x_nf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column, in float64."""
    mean_f, square_f = np.zeros((2, x_nf.shape[1]))
    for start in range(0, len(x_nf), ROWS):
        mean_f += x_nf[start : start + ROWS].sum(axis=0, dtype=np.float64) / len(x_nf)
    for start in range(0, len(x_nf), ROWS):
        square_f += np.square(x_nf[start : start + ROWS] - mean_f).sum(axis=0) / len(x_nf)
    return mean_f, np.sqrt(square_f)

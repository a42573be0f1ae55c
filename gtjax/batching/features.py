"""Scaling of node features, a few rows at a time, so that no second copy of all is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS = 1 << 14  # looked at together


@dataclass(frozen=True)
class Scaling:
    """What is done to any rows of the features, as fitted on the graph of a training.

    It belongs to the trained model: other graphs are scaled by the same numbers.
    """

    how: str  # "none", "row" or "standard"
    mean_f: np.ndarray | None = None
    std_f: np.ndarray | None = None

    @staticmethod
    def of(x_nf: np.ndarray, how: str) -> Scaling:
        """Fitted on these features: see `PrepareConfig.features`."""
        if how == "auto":
            how = "row" if _is_sparse(x_nf) else "standard"
        if how == "none" or not x_nf.size:
            return Scaling("none")
        return Scaling(how, *(_moments(x_nf) if how == "standard" else ()))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Rows as the model reads them."""
        if self.how == "row":
            return _to_sum_one(rows)
        if self.mean_f is None or self.std_f is None:
            return rows
        return ((rows - self.mean_f) / np.where(self.std_f > 0, self.std_f, 1)).astype(np.float32)

    def to_json(self) -> dict[str, Any]:
        """Plain types; numbers come back as they were."""
        moments = {"mean": self.mean_f, "std": self.std_f}
        known = {name: each.tolist() for name, each in moments.items() if each is not None}
        return {"how": self.how, **known}

    @staticmethod
    def from_json(known: dict[str, Any]) -> Scaling:
        """What was written."""
        moments = (np.array(known[name]) for name in ("mean", "std") if name in known)
        return Scaling(known["how"], *moments)


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

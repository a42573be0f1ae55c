"""One problem on the disk: a graph, the arrays of the op, and what the reference made of them.

Written once by the parent and read by every contender, so that all of them see the same numbers.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOLERANCE = 1e-4  # between float32 sums of the same terms in another order
LEARNING_RATE = 1e-3  # of a step


@dataclass(frozen=True)
class Case:
    """Sizes of a problem: an op alone, or a step of training a model around attention."""

    kind: str  # of `OP_KINDS`, or "step"
    nodes: int
    edges: int
    heads: int
    width: int  # of a head
    layers: int = 0  # from here on: of the model of a step
    features: int = 0
    classes: int = 0

    @property
    def hidden(self) -> int:
        """Width of the model."""
        return self.heads * self.width


class CaseFolder:
    """The arrays of a case as `.npy` files. Edges are sorted by receiver."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def case(self) -> Case:
        """The sizes."""
        return Case(**json.loads((self.path / "case.json").read_text(encoding="utf-8")))

    def write(self, case: Case, **arrays: np.ndarray) -> None:
        """Store the sizes and the arrays."""
        text = json.dumps(dataclasses.asdict(case))
        (self.path / "case.json").write_text(text, encoding="utf-8")
        for name, array in arrays.items():
            np.save(self.path / f"{name}.npy", array)

    def array(self, name: str) -> np.ndarray:
        """One of the stored arrays."""
        return np.load(self.path / f"{name}.npy")

    def write_reference(self, results: dict[str, np.ndarray]) -> None:
        """Store what the reference computed."""
        for name, array in results.items():
            np.save(self.path / f"reference-{name}.npy", array)

    def distances(self, results: dict[str, np.ndarray]) -> dict[str, float]:
        """How far each result is from the reference's, at its worst node."""
        return {
            name: distance(array, self.array(f"reference-{name}"))
            for name, array in results.items()
        }


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest error of a node, relative to the norm of its values or, if larger, a typical norm.

    By node and not by value: a value of a hub is a sum of thousands of terms that nearly cancel,
    and in float32 it has the error of the terms. NaN if there is one among the values, and infinite
    if the shapes differ.
    """
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    norm_n = _norms(wanted)
    typical = np.sqrt(np.mean(np.square(norm_n)))
    return float(np.max(_norms(found - wanted) / (norm_n + typical + 1e-30)))


def _norms(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(len(values), -1)
    return np.sqrt(np.einsum("nf,nf->n", rows, rows, dtype=np.float64))

"""The largest eigenvalues of S below the trivial ones, by Chebyshev-filtered subspace iteration.

A block of vectors is multiplied with a Chebyshev polynomial of S, which is small on the unwanted
part of the spectrum and grows steeply above it, then orthonormalised, and so on. Unlike Lanczos it
always has an answer, the best so far, however short it is cut (Zhou, Saad, Tiago and Chelikowsky,
"Self-consistent-field calculations using Chebyshev-filtered subspace iteration", 2006).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gtjax.graph.positional.adjacency import normalised

_MAX_DEGREE = 24


class DeflatedMatrix:
    """S without its trivial eigenvectors, which are the square roots of the degrees by component.

    They belong to eigenvalue 1, one for each connected component, and are known beforehand:
    projecting them out leaves the eigenvectors that tell positions, also in a disconnected graph.
    """

    def __init__(self, adjacency: sp.csr_array, dtype: type):
        self.degrees_n = np.asarray(adjacency.sum(axis=1, dtype=np.float64))
        self.matrix = normalised(adjacency, dtype)
        self.num_components, component_n = sp.csgraph.connected_components(
            adjacency, directed=False
        )
        total = np.bincount(component_n, self.degrees_n)
        unit_n = np.sqrt(self.degrees_n / total[component_n]).astype(dtype)
        starts = np.arange(len(unit_n) + 1, dtype=np.int32)
        shape = (len(unit_n), self.num_components)
        self.trivial = sp.csr_array((unit_n, component_n, starts), shape=shape)
        self.trivial_t = self.trivial.T.tocsr()

    def project(self, vectors: np.ndarray) -> np.ndarray:
        """Take the trivial part out of `vectors`, in place."""
        vectors -= self.trivial @ (self.trivial_t @ vectors)
        return vectors

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """S times `vectors`, free of the trivial part."""
        return self.project(self.matrix @ vectors)


@dataclass(frozen=True)
class Ritz:
    """Approximate eigenvectors in descending order of eigenvalue, and how far off they are."""

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray


def dense_eigenvectors(matrix: DeflatedMatrix, count: int) -> np.ndarray:
    """Exact eigenvectors, at most `count` and at most as many as are not trivial."""
    # 2 added to every eigenvalue but the trivial ones, which become 0, puts those at the end.
    num_nodes = len(matrix.degrees_n)
    shifted = matrix.matrix.astype(np.float64).toarray() + 2 * np.eye(num_nodes)
    trivial = matrix.trivial.astype(np.float64).toarray()
    shifted -= 3 * trivial @ trivial.T
    count = min(count, num_nodes - matrix.num_components)
    _, vectors = np.linalg.eigh(shifted)
    return vectors[:, ::-1][:, :count]


def refine(
    matrix: DeflatedMatrix,
    start: np.ndarray,
    *,
    wanted: int,
    tolerance: float,
    max_products: int,
    report: Callable[[float], None],
) -> Ritz:
    """Improve a block of vectors until the first `wanted` have a residual of `tolerance`.

    The block has a few more columns than wanted, which is what the filter cuts off at. Stops after
    `max_products` products with S at the latest.
    """
    ritz = _rayleigh_ritz(matrix, matrix.project(start))
    products = 1
    steepest = np.arccosh(1e4 if start.dtype == np.float32 else 1e8)
    while ritz.residuals[:wanted].max(initial=0) > tolerance and products < max_products:
        cut = float(np.clip(ritz.values[-1], -0.9, 0.999999))
        top = float(max(ritz.values[0], cut))
        # As steep as the precision bears: beyond, the first vector drowns the others.
        growth = np.arccosh(max((2 * top - cut + 1) / (cut + 1), 1 + 1e-12))
        degree = int(np.clip(steepest / growth, 4, _MAX_DEGREE))
        ritz = _rayleigh_ritz(matrix, _filtered(matrix, ritz.vectors, cut, degree))
        products += degree + 1
        report(min(1.0, products / max_products))
    return ritz


def _filtered(matrix: DeflatedMatrix, vectors: np.ndarray, cut: float, degree: int) -> np.ndarray:
    """Chebyshev polynomial of S that stays within -1..1 on -1..cut, times `vectors`."""
    centre, half = (cut - 1) / 2, (cut + 1) / 2
    before = vectors
    latest = matrix.apply(vectors)
    latest -= centre * vectors
    latest /= half
    for _ in range(degree - 1):
        following = matrix.apply(latest)
        following -= centre * latest
        following *= 2 / half
        following -= before
        before, latest = latest, following
    return latest


def _rayleigh_ritz(matrix: DeflatedMatrix, block: np.ndarray) -> Ritz:
    basis, _ = np.linalg.qr(block)
    image = matrix.apply(basis)
    small = basis.T @ image
    values, mix = np.linalg.eigh((small + small.T) / 2)
    mix = mix[:, ::-1].astype(block.dtype)
    values = values[::-1].astype(block.dtype)
    vectors = basis @ mix
    image = image @ mix
    image -= vectors * values
    return Ritz(values, vectors, np.sqrt(np.einsum("nc,nc->c", image, image)))

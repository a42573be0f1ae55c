"""Laplacian encoding: where a node lies in the graph as a whole.

Choose it for global position, what a coordinate is to a grid (Dwivedi and Bresson, "A
generalization of transformer networks to graphs", 2021). Eigenvectors have no sign of their own
and may be mixed where eigenvalues coincide; the sign is fixed here by a rule, the mixture is not.

Graphs of up to a thousand nodes are solved exactly. Larger ones are merged level by level until
they are that small, and the eigenvectors are carried back up and refined on every level (see
`coarsening` and `subspace`), which takes a bounded number of products with the matrix and always
gives an answer: smooth over the graph and orthonormal, though eigenvectors deep in a crowd of
nearly equal eigenvalues come out mixed with each other.

Measured with 8 columns on two CPU cores, memory of the whole process: a grid of a million nodes
27 s and 1.0 GB (the span of the columns is within 3 degrees of the true one), `rmat` of a million
nodes and five million undirected edges 25 s and 0.7 GB, `synthetic-citation` of the same size 67 s
and 1.2 GB, and 1 s at its default size.

In a large sparse graph with uneven degrees the smallest eigenvalues may belong to chains and trees
that dangle from it, and then a column is zero but for a few nodes. `random_walk` has no such
trouble.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gtjax.core.errors import UserError
from gtjax.core.progress import Progress, ignore_progress
from gtjax.graph.graph import Graph
from gtjax.graph.positional.adjacency import undirected_adjacency
from gtjax.graph.positional.coarsening import coarsen
from gtjax.graph.positional.subspace import DeflatedMatrix, dense_eigenvectors, refine

_DENSE_NODES = 1000
_DOUBLE_NODES = 100_000  # up to here double precision costs little and converges further
_GUARDS = 8  # columns beyond those wanted: the last ones converge slowest


def laplacian(graph: Graph, size: int, *, progress: Progress = ignore_progress) -> np.ndarray:
    """Eigenvectors of the `size` smallest non-trivial Laplacian eigenvalues, float32 [N, size].

    The Laplacian is I - D^-1/2 A D^-1/2 of the graph taken as undirected and simple. Trivial are
    the eigenvectors of eigenvalue 0, one a connected component; nodes without other nodes in
    reach get zeros, and so do columns that the graph has no eigenvectors for. A column has mean
    square 1 over the nodes, and its entry of largest magnitude is positive.
    """
    if size < 1:
        raise UserError(f"a Laplacian encoding has at least 1 column; found {size}. Raise size.")
    adjacency = undirected_adjacency(graph)
    connected = np.flatnonzero(np.diff(adjacency.indptr) - (adjacency.diagonal() != 0) > 0)
    result_nk = np.zeros((graph.num_nodes, size), np.float32)
    if not len(connected):
        return result_nk
    if len(connected) < graph.num_nodes:
        adjacency = adjacency[connected][:, connected].tocsr()
    single = len(connected) > _DOUBLE_NODES
    vectors = _eigenvectors(
        sp.csr_array(adjacency, dtype=np.float32 if single else np.float64),
        size,
        rng=np.random.default_rng(0),
        tolerance=1e-3 if single else 1e-6,
        max_products=100 if single else 1000,
        progress=progress,
    )[:, :size]
    largest = np.abs(vectors).argmax(axis=0)
    sign = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1, 1)
    result_nk[connected, : vectors.shape[1]] = vectors * (sign * np.sqrt(graph.num_nodes))
    progress(1.0, "Laplacian encoding")
    return result_nk


def _eigenvectors(
    adjacency: sp.csr_array,
    size: int,
    *,
    rng: np.random.Generator,
    tolerance: float,
    max_products: int,
    progress: Progress,
) -> np.ndarray:
    """At least `size` columns, best first, or all there are in a small graph."""
    num_nodes = len(adjacency.indptr) - 1
    dtype = adjacency.dtype.type
    block_size = size + _GUARDS
    matrix = DeflatedMatrix(adjacency, dtype)
    if num_nodes <= max(_DENSE_NODES, 4 * block_size):
        return dense_eigenvectors(matrix, block_size).astype(dtype)
    coarsening = coarsen(adjacency, rng)
    # Merging keeps components, each with one trivial vector. What is left has to fill the block.
    useful = coarsening.num_groups - matrix.num_components >= block_size
    if useful and coarsening.num_groups <= 0.8 * num_nodes:
        coarse = _eigenvectors(
            coarsening.adjacency,
            size,
            rng=rng,
            tolerance=tolerance,
            max_products=max_products,
            progress=ignore_progress,
        )
        start = coarsening.spread(coarse, matrix.degrees_n)
    else:  # merging leads nowhere
        start = rng.standard_normal((num_nodes, block_size), dtype)
    return refine(
        matrix,
        start,
        wanted=size,
        tolerance=tolerance,
        max_products=max_products,
        report=lambda fraction: progress(fraction, "Laplacian encoding"),
    ).vectors

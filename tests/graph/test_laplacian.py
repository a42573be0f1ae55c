"""Laplacian encoding: residuals and subspaces against dense solutions, on every kind of graph."""

import numpy as np
import pytest
from hypothesis import given

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.graph.generators import grid, rmat, synthetic_citation
from gtjax.graph.positional import laplacian, laplacian_eigenvectors
from tests.graph.graphs import graphs, make_graph


@pytest.fixture
def few_dense_nodes(monkeypatch):
    """Send graphs of more than a hundred nodes down the road of large graphs."""
    monkeypatch.setattr(laplacian_eigenvectors, "_DENSE_NODES", 100)


def dense_laplacian(graph: Graph) -> np.ndarray:
    """I - S; 0 for nodes without edges, whose eigenvalue is 0 by convention."""
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
    adjacency[graph.senders_e, graph.receivers_e] = 1
    adjacency = np.maximum(adjacency, adjacency.T)
    degrees = adjacency.sum(axis=1)
    scale = np.divide(1, np.sqrt(degrees), out=np.zeros(graph.num_nodes), where=degrees > 0)
    return np.diag((degrees > 0).astype(float)) - scale[:, None] * adjacency * scale


def eigenvalues(graph: Graph, encoding: np.ndarray) -> np.ndarray:
    """Rayleigh quotients of the columns, after a check that they are eigenvectors."""
    matrix, vectors = dense_laplacian(graph), encoding.astype(np.float64)
    values = np.einsum("nc,nc->c", vectors, matrix @ vectors) / graph.num_nodes
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=2e-4)
    return values


def smallest_nontrivial(graph: Graph) -> np.ndarray:
    values = np.linalg.eigvalsh(dense_laplacian(graph))
    return values[values > 1e-9]


@given(graphs())
def test_columns_are_the_smallest_nontrivial_eigenvectors(graph):
    expected = smallest_nontrivial(graph)
    for size in (1, 3, 10):
        encoding = laplacian(graph, size)
        assert encoding.shape == (graph.num_nodes, size)
        assert encoding.dtype == np.float32
        count = min(size, len(expected))
        assert not encoding[:, count:].any()  # the graph has no more: zeros
        found = encoding[:, :count]
        np.testing.assert_allclose(eigenvalues(graph, found), expected[:count], atol=1e-5)
        gram = found.T.astype(np.float64) @ found / graph.num_nodes
        np.testing.assert_allclose(gram, np.eye(count), atol=1e-5)


@given(graphs())
def test_largest_entry_is_positive_and_result_is_the_same_again(graph):
    encoding = laplacian(graph, 4)
    np.testing.assert_allclose(encoding.max(axis=0), np.abs(encoding).max(axis=0), rtol=1e-5)
    assert encoding.tobytes() == laplacian(graph, 4).tobytes()


@pytest.mark.usefixtures("few_dense_nodes")
def test_the_road_of_large_graphs_agrees_with_dense_on_blocks():
    graph = synthetic_citation(nodes=900, features=1)
    encoding = laplacian(graph, 7)  # eight blocks, seven ways to tell them apart, then a gap
    values, vectors = np.linalg.eigh(dense_laplacian(graph))
    first = int(np.flatnonzero(values > 1e-9)[0])
    np.testing.assert_allclose(eigenvalues(graph, encoding), values[first : first + 7], atol=1e-5)
    wanted = vectors[:, first : first + 7]
    projector = encoding.astype(np.float64) @ encoding.T / graph.num_nodes
    np.testing.assert_allclose(projector, wanted @ wanted.T, atol=1e-4)
    assert encoding.tobytes() == laplacian(graph, 7).tobytes()


@pytest.mark.parametrize("single_precision", [False, True])
def test_a_long_ring_has_waves(monkeypatch, single_precision):
    # Eigenvalues 1 - cos(2 pi k / n), in pairs: the subspace of each pair is what is determined.
    if single_precision:
        monkeypatch.setattr(laplacian_eigenvectors, "_DOUBLE_NODES", 0)
    num_nodes = 3001
    node = np.arange(num_nodes)
    encoding = laplacian(make_graph(node, (node + 1) % num_nodes, num_nodes), 6)
    for pair in range(3):
        angle = 2 * np.pi * (pair + 1) * node / num_nodes
        waves = np.sqrt(2) * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        overlap = waves.T @ encoding[:, 2 * pair : 2 * pair + 2] / num_nodes
        cosines = np.linalg.svd(overlap, compute_uv=False)
        assert cosines.min() > (0.95 if single_precision else 0.9999)


@pytest.mark.usefixtures("few_dense_nodes")
def test_components_are_not_what_the_columns_tell():
    ring = np.arange(300)
    ends = (ring + 1) % 300
    # Two rings, a loop alone (600) and a node alone (601): three trivial vectors and a zero row.
    graph = make_graph([*ring, *(ring + 300), 600], [*ends, *(ends + 300), 600], 602)
    encoding = laplacian(graph, 8)
    wave = 1 - np.cos(2 * np.pi * np.array([1, 1, 1, 1, 2, 2, 2, 2]) / 300)
    np.testing.assert_allclose(eigenvalues(graph, encoding), wave, atol=1e-6)
    assert not encoding[600:].any()
    for part in (slice(0, 300), slice(300, 600)):
        np.testing.assert_allclose(encoding[part].sum(axis=0), 0, atol=1e-2)


@pytest.mark.usefixtures("few_dense_nodes")
def test_many_nodes_that_only_loop_leave_the_rest_alone():
    loops = np.arange(3, 503)
    graph = make_graph([0, 1, 2, *loops], [1, 2, 0, *loops], 503)
    encoding = laplacian(graph, 5)
    np.testing.assert_allclose(eigenvalues(graph, encoding[:, :2]), [1.5, 1.5], atol=1e-5)
    assert not encoding[3:].any()
    assert not encoding[:, 2:].any()


@pytest.mark.usefixtures("few_dense_nodes")
def test_a_grid_gets_coordinates():
    encoding = laplacian(grid(rows=20, columns=60, features=1), 1)[:, 0].reshape(20, 60)
    steps = np.diff(encoding.mean(axis=0)[1:-1])  # the border has fewer neighbours
    assert (steps > 0).all() or (steps < 0).all()  # the long side first


@pytest.mark.usefixtures("few_dense_nodes")
@pytest.mark.parametrize("single_precision", [False, True])
@pytest.mark.parametrize(
    "graph",
    [
        rmat(nodes=1200, edges=3600, features=1),
        make_graph(np.arange(0, 800, 2), np.arange(1, 800, 2), 801),  # disjoint pairs
        make_graph(np.zeros(500), np.arange(1, 501), 501),  # a star: one eigenvalue 500 times
        make_graph(*np.triu_indices(150, 1), 150),  # everything with everything
        make_graph([], [], 400),
    ],
    ids=["rmat", "pairs", "star", "complete", "no-edges"],
)
def test_awkward_graphs_get_finite_orthogonal_columns(graph, single_precision, monkeypatch):
    if single_precision:
        monkeypatch.setattr(laplacian_eigenvectors, "_DOUBLE_NODES", 0)
    encoding = laplacian(graph, 5).astype(np.float64)
    assert np.isfinite(encoding).all()
    gram = encoding.T @ encoding / graph.num_nodes
    np.testing.assert_allclose(gram, np.eye(5) * (graph.num_edges > 0), atol=1e-3)
    found = np.einsum("nc,nc->c", encoding, dense_laplacian(graph) @ encoding) / graph.num_nodes
    if graph.num_edges:
        expected = smallest_nontrivial(graph)[:5]
        np.testing.assert_allclose(found, expected, atol=2e-3 if single_precision else 1e-5)


@pytest.mark.usefixtures("few_dense_nodes")
def test_running_out_of_products_still_gives_an_answer(monkeypatch):
    refine = laplacian_eigenvectors.refine
    monkeypatch.setattr(
        laplacian_eigenvectors,
        "refine",
        lambda *args, **kwargs: refine(*args, **(kwargs | {"max_products": 1})),
    )
    encoding = laplacian(grid(rows=40, columns=40, features=1), 3).astype(np.float64)
    np.testing.assert_allclose(encoding.T @ encoding / 1600, np.eye(3), atol=1e-5)


@pytest.mark.usefixtures("few_dense_nodes")
def test_progress_rises_to_one():
    seen = []
    graph = grid(rows=30, columns=30, features=1)
    laplacian(graph, 4, progress=lambda fraction, message: seen.append((fraction, message)))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert len(fractions) > 1


def test_bad_size_is_named():
    with pytest.raises(UserError, match="at least 1 column; found 0"):
        laplacian(make_graph([0], [1], 2), 0)

"""Generators: deterministic, symmetric, of the size asked for, fast, and worth learning."""

import inspect
import time

import numpy as np
import pytest
import scipy.sparse as sp

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.graph.generators import GENERATORS, grid, rmat, synthetic_citation, uniform

BY_NAME = pytest.mark.parametrize("name", GENERATORS)
TEN_MILLION = {
    "synthetic-citation": {"nodes": 1_000_000, "mean_degree": 10.0, "features": 8},
    "rmat": {"nodes": 1_000_000, "edges": 10_000_000, "features": 8},
    "uniform": {"nodes": 1_000_000, "edges": 10_000_000, "features": 8},
    "grid": {"rows": 1600, "columns": 1600, "features": 8},
}


def ridge_accuracy(graph: Graph, hops: int) -> float:
    """Test accuracy of ridge regression on features averaged `hops` times over neighbours."""
    size = (graph.num_nodes, graph.num_nodes)
    ones = np.ones(graph.num_edges)
    mean = sp.csr_array((ones, (graph.receivers_e, graph.senders_e)), shape=size)
    mean = mean + sp.eye_array(graph.num_nodes)
    mean = sp.diags_array(1 / mean.sum(axis=1)) @ mean
    x = graph.x_nf.astype(np.float64)
    for _ in range(hops):
        x = mean @ x
    x = np.column_stack([x, np.ones(graph.num_nodes)])
    wanted = np.eye(graph.num_classes)[graph.labels_n]
    train, val, test = (graph.split_n[key] for key in ("train", "val", "test"))
    scores = []
    for penalty in 10.0 ** np.arange(-3, 4):
        gram = x[train].T @ x[train] + penalty * np.eye(x.shape[1])
        hit = (x @ np.linalg.solve(gram, x[train].T @ wanted[train])).argmax(1) == graph.labels_n
        scores.append((hit[val].mean(), hit[test].mean()))
    return max(scores)[1]  # the penalty is chosen on val


@BY_NAME
def test_same_seed_gives_the_same_graph_and_another_seed_another(name):
    first, again, other = (GENERATORS[name](seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert first.x_nf.tobytes() != other.x_nf.tobytes()


@BY_NAME
def test_every_generator_keeps_the_conventions(name):
    graph = GENERATORS[name]()
    assert graph.name == name
    assert graph.is_symmetric
    assert graph.without_self_loops() is graph
    assert graph.without_duplicate_edges() is graph
    assert graph.senders_e.dtype == graph.receivers_e.dtype == np.int32
    assert graph.x_nf.dtype == np.float32
    assert graph.labels_n.dtype == np.int32
    assert (np.bincount(graph.labels_n, minlength=8) > 0.5 * graph.num_nodes / 8).all()
    assert sum(mask.sum() for mask in graph.split_n.values()) == graph.num_nodes
    assert all(graph.split_n[key].any() for key in ("train", "val", "test"))


@BY_NAME
def test_signatures_can_be_read_by_a_command_line(name):
    generator = GENERATORS[name]
    summary = (generator.__doc__ or "").splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) < 100
    for parameter in inspect.signature(generator).parameters.values():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.annotation in (int, float)
        assert isinstance(parameter.default, parameter.annotation)


@BY_NAME
def test_ten_million_edges_take_seconds(name):
    started = time.perf_counter()
    graph = GENERATORS[name](**TEN_MILLION[name])
    assert time.perf_counter() - started < 30
    assert graph.num_edges >= 10_000_000


@pytest.mark.parametrize("seed", [0, 1])
def test_citation_needs_its_graph(seed):
    graph = synthetic_citation(seed=seed)
    assert 0.40 < ridge_accuracy(graph, hops=0) < 0.55
    assert ridge_accuracy(graph, hops=1) > 0.85
    assert ridge_accuracy(graph, hops=2) > 0.94


def test_citation_has_the_degrees_and_homophily_asked_for():
    graph = synthetic_citation(nodes=20_000, mean_degree=10.0, homophily=0.5, degree_spread=1.0)
    assert graph.num_edges == 200_000
    same = graph.labels_n[graph.senders_e] == graph.labels_n[graph.receivers_e]
    assert same.mean() == pytest.approx(0.5 + 0.5 / 8, abs=0.01)  # any two nodes may share a class
    spread, equal = (
        synthetic_citation(nodes=20_000, degree_spread=width).by_receiver.degrees_n.std()
        for width in (1.0, 0.0)
    )
    assert equal == pytest.approx(np.sqrt(12), rel=0.05)  # Poisson
    assert spread > 3 * equal


def test_grid_is_a_lattice_whose_surroundings_help():
    graph = grid(rows=3, columns=5)
    assert graph.num_edges == 2 * (3 * 4 + 2 * 5)
    pairs = set(zip(graph.senders_e.tolist(), graph.receivers_e.tolist(), strict=True))
    for row in range(3):
        for column in range(5):
            node = 5 * row + column
            assert ((node, node + 1) in pairs) == (column < 4)
            assert ((node, node + 5) in pairs) == (row < 2)
    graph = grid()
    assert ridge_accuracy(graph, hops=0) < 0.6
    assert ridge_accuracy(graph, hops=2) > 0.85


def test_rmat_is_skewed_where_uniform_is_not():
    skewed = rmat().by_receiver.degrees_n
    even = uniform().by_receiver.degrees_n
    assert skewed.mean() == even.mean() == 16
    assert skewed.max() > 50 * skewed.mean()
    assert even.max() < 3 * even.mean()


@pytest.mark.parametrize("nodes", [1, 2, 3, 1000, 1024, 1025])
def test_rmat_takes_any_number_of_nodes(nodes):
    graph = rmat(nodes=nodes, edges=2 * (nodes - 1))
    assert (graph.num_nodes, graph.num_edges) == (nodes, 2 * (nodes - 1))


def test_rmat_splits_edges_over_quadrants_as_asked():
    # One class per half of the recursion's numbering: the label is the first bit.
    graph = rmat(nodes=2**15, edges=40_000, a=0.4, b=0.2, c=0.3, classes=2)
    half = graph.labels_n[graph.senders_e] * 2 + graph.labels_n[graph.receivers_e]
    shares = np.bincount(half, minlength=4) / graph.num_edges
    np.testing.assert_allclose(shares, [0.4, 0.25, 0.25, 0.1], atol=0.02)


def test_rmat_labels_are_stretches_of_the_recursion():
    # Three quarters of a matrix: the stretches are those of the first two binary digits 00, 01, 10.
    graph = rmat(nodes=3 * 2**12, edges=40_000, classes=3)
    degree = [graph.by_receiver.degrees_n[graph.labels_n == each].mean() for each in range(3)]
    assert degree[0] > 2 * degree[1]
    assert degree[0] > 2 * degree[2]


@BY_NAME
def test_the_smallest_graphs_work(name):
    none = {"synthetic-citation": {"mean_degree": 0.0}, "grid": {}}.get(name, {"edges": 0})
    size = {"rows": 1, "columns": 1} if name == "grid" else {"nodes": 1}
    graph = GENERATORS[name](**size, **none, classes=1, features=0)
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (1, 0, 0)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("synthetic-citation", {"nodes": 0}, "nodes is at least 1; found 0"),
        ("synthetic-citation", {"homophily": 1.5}, "homophily is a fraction in 0..1; found 1.5"),
        ("synthetic-citation", {"mean_degree": float("nan")}, "mean_degree is at least 0"),
        ("synthetic-citation", {"nodes": 10}, "45 possible pairs of 10 nodes"),
        ("uniform", {"nodes": 2**31 + 1}, "at most 2\\^31 nodes"),
        ("uniform", {"nodes": 10, "edges": 92}, "46 of 45 possible pairs"),
        ("uniform", {"seed": -1}, "seed is at least 0; found -1"),
        ("rmat", {"a": 0.1, "b": 0.5}, "a is the largest"),
        ("rmat", {"a": 0.8, "b": 0.3}, "a \\+ b \\+ c is a fraction"),
        ("grid", {"rows": -1}, "rows is at least 1; found -1"),
        ("grid", {"classes": 0}, "classes is at least 1; found 0"),
    ],
)
def test_arguments_out_of_range_are_named(name, arguments, message):
    with pytest.raises(UserError, match=message):
        GENERATORS[name](**arguments)

"""Random-walk encoding: exact against powers of the dense matrix, sketched within its error."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given

from gtjax.core.errors import UserError
from gtjax.graph.generators import synthetic_citation, uniform
from gtjax.graph.positional import random_walk, random_walks
from tests.graph.graphs import graphs, make_graph


def dense_return_probabilities(graph, steps):
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes))
    adjacency[graph.senders_e, graph.receivers_e] = 1
    adjacency = np.maximum(adjacency, adjacency.T)
    walk = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    return np.stack([np.diag(np.linalg.matrix_power(walk, k + 1)) for k in range(steps)], axis=1)


@given(graphs())
def test_exact_is_the_diagonal_of_powers(graph):
    for steps in (1, 2, 7):
        encoding = random_walk(graph, steps)
        assert encoding.dtype == np.float32
        expected = dense_return_probabilities(graph, steps)
        np.testing.assert_allclose(encoding, expected, rtol=1e-5, atol=1e-6)


def test_exact_over_several_blocks_of_columns():
    graph = synthetic_citation(nodes=101, mean_degree=5.0, features=1)  # 101 = 3 * 32 + 5
    expected = dense_return_probabilities(graph, 9)
    np.testing.assert_allclose(random_walk(graph, 9, exact=True), expected, rtol=1e-4, atol=1e-6)


def test_known_graphs():
    triangle = random_walk(make_graph([0, 1, 2], [1, 2, 0], 3), 3)
    np.testing.assert_allclose(triangle, [[0, 1 / 2, 1 / 4]] * 3, atol=1e-6)
    # A square is bipartite: no odd returns. The last node has no edges.
    square = random_walk(make_graph([0, 1, 2, 3], [1, 2, 3, 0], 5), 4)
    np.testing.assert_allclose(square, [[0, 1 / 2, 0, 1 / 2]] * 4 + [[0] * 4], atol=1e-6)


@pytest.fixture(scope="module")
def sketches():
    """Exact probabilities and forty sketches: one seed errs alike on many nodes."""
    graph = synthetic_citation(nodes=1000, features=1)
    exact = random_walk(graph, 9, exact=True)
    some = exact[:, 1] > 0
    drawn = [random_walk(graph, 9, exact=False, samples=64, seed=n)[some] for n in range(40)]
    return exact[some], np.stack(drawn)


def test_sketch_is_exact_in_the_first_two_steps(sketches):
    exact, drawn = sketches
    for sketch in drawn:
        np.testing.assert_allclose(sketch[:, :2], exact[:, :2], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("k", [4, 6, 8])
def test_sketch_errs_as_much_as_it_says_at_even_steps(sketches, k):
    exact, drawn = sketches
    relative = drawn[:, :, k - 1] / exact[:, k - 1] - 1
    deviation = np.sqrt(np.mean(relative**2))
    assert 0.8 * np.sqrt(2 / 64) < deviation < 1.05 * np.sqrt(2 / 64)
    assert abs(relative.mean()) < 0.04


@pytest.mark.parametrize("k", [3, 5, 7])
def test_sketch_errs_as_much_as_it_says_at_odd_steps(sketches, k):
    exact, drawn = sketches
    bound = np.sqrt(2 * exact[:, k - 2] * exact[:, k] / 64)
    error = np.abs(drawn[:, :, k - 1] - exact[:, k - 1])
    assert np.sqrt(np.mean((error / bound) ** 2)) < 1
    assert np.mean(error <= 3 * bound) > 0.99


def test_more_samples_err_less():
    graph = synthetic_citation(nodes=1000, features=1)
    exact = random_walk(graph, 8, exact=True)
    errors = [
        np.abs(random_walk(graph, 8, exact=False, samples=samples) - exact).mean()
        for samples in (16, 256)
    ]
    assert errors[1] < errors[0] / 2


def test_the_way_is_chosen_by_the_work(monkeypatch):
    graph = synthetic_citation(nodes=500, features=1)
    exact, sketch = (random_walk(graph, 4, exact=choice) for choice in (True, False))
    assert not np.allclose(exact, sketch)
    assert random_walk(graph, 4).tobytes() == exact.tobytes()
    monkeypatch.setattr(random_walks, "EXACT_WORK", 1e3)
    assert random_walk(graph, 4).tobytes() == sketch.tobytes()
    assert random_walk(graph, 4, exact=False, seed=1).tobytes() != sketch.tobytes()


def test_direction_and_repetition_of_edges_do_not_matter():
    once = make_graph([0, 1, 2], [1, 2, 3], 4)
    often = make_graph([1, 1, 1, 3, 1], [0, 2, 2, 2, 0], 4)
    np.testing.assert_array_equal(random_walk(once, 6), random_walk(often, 6))


def test_two_iterates_are_alive_not_all():
    graph = uniform(nodes=50_000, edges=200_000, features=1)
    tracemalloc.start()
    random_walk(graph, 20, exact=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    iterate = 50_000 * 32 * 4
    assert peak < 3.5 * iterate  # two, and the matrix and the result, which are smaller


def test_progress_ends_at_one():
    seen = []
    graph = synthetic_citation(nodes=100, mean_degree=4.0, features=1)
    random_walk(graph, 3, progress=lambda fraction, message: seen.append((fraction, message)))
    fractions = [fraction for fraction, _ in seen]
    assert len(fractions) == 4
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert seen[0][1] == "random-walk encoding"


def test_bad_arguments_are_named():
    graph = make_graph([0], [1], 2)
    with pytest.raises(UserError, match="at least 1 step; found 0"):
        random_walk(graph, 0)
    with pytest.raises(UserError, match="at least 1 sample; found 0"):
        random_walk(graph, 1, samples=0)

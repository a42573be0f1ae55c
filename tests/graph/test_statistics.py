"""Statistics: known figures of small graphs, and seconds for large ones."""

import json
import time

import numpy as np
import pytest
from hypothesis import given

from gtjax.graph import GENERATORS, Graph, statistics
from tests.graph.graphs import edge_pairs, graphs, make_graph


def test_figures_of_a_graph_with_everything():
    # A path 0 - 1 -> 2 with 0 -> 1 twice, a loop on 3, and 4 alone.
    graph = make_graph(
        [0, 0, 1, 1, 3],
        [1, 1, 0, 2, 3],
        5,
        labels_n=np.array([0, 0, 2, -1, 2]),
        split_n={"train": np.array([True, True, False, False, False])},
        edge_x_ef=np.zeros((5, 2)),
        name="small",
    )
    figures = statistics(graph)
    assert figures == {
        "name": "small",
        "nodes": 5,
        "edges": 5,
        "features": 1,
        "edge_features": 2,
        "classes": 3,
        "multilabel": False,
        "symmetric": False,
        "self_loops": 1,
        "multi_edges": 1,
        "isolated_nodes": 1,
        "degree": {"min": 0, "mean": 1.0, "median": 1.0, "max": 2},
        "degree_histogram": [(0, 1), (1, 3), (2, 1)],
        "components": 3,
        "largest_component": 3,
        "edge_homophily": 3 / 4,
        "labelled_nodes": 4,
        "class_counts": [2, 0, 2],
        "splits": {"train": 2},
    }
    assert json.loads(json.dumps(figures))["degree_histogram"] == [[0, 1], [1, 3], [2, 1]]


@given(graphs())
def test_counts_add_up(graph):
    figures = statistics(graph)
    pairs = edge_pairs(graph)
    assert figures["multi_edges"] == len(pairs) - len(set(pairs))
    assert figures["self_loops"] == sum(s == r for s, r in pairs)
    assert figures["isolated_nodes"] == graph.num_nodes - len({n for pair in pairs for n in pair})
    assert sum(count for _, count in figures["degree_histogram"]) == graph.num_nodes
    assert figures["components"] >= figures["isolated_nodes"]
    assert figures["edge_homophily"] is None  # nothing is labelled
    json.dumps(figures, allow_nan=False)


@pytest.mark.parametrize(
    ("degree", "lower"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8)]
)
def test_histogram_bins_are_powers_of_two(degree, lower):
    graph = make_graph(np.arange(1, degree + 1), np.zeros(degree), 10)
    filled = [low for low, count in statistics(graph)["degree_histogram"] if count and low]
    assert filled == ([lower] if degree else [])


def test_multilabel_counts_are_by_task():
    labels = np.array([[1, 0], [1, -1], [-1, -1]])
    figures = statistics(Graph([0], [1], np.zeros((3, 1)), labels))
    assert figures["class_counts"] == [2, 0]
    assert figures["labelled_nodes"] == 2
    assert figures["edge_homophily"] is None


@pytest.mark.slow
def test_ten_million_edges_take_seconds():
    graph = GENERATORS["uniform"](nodes=1_000_000, edges=10_000_000, features=1)
    started = time.perf_counter()
    figures = statistics(graph)
    assert time.perf_counter() - started < 30
    assert figures["symmetric"]
    assert figures["multi_edges"] == 0
    assert figures["edge_homophily"] == pytest.approx(1 / 8, abs=0.01)

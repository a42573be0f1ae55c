"""The order that lets neighbours stand close together is an order, and does so."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import gtjax
from gtjax.graph import Graph, locality_order, log_gap
from gtjax.graph.csr import inverse_order


def graph_of(senders, receivers, nodes):
    rng = np.random.default_rng(0)
    return Graph(
        np.asarray(senders, np.int32),
        np.asarray(receivers, np.int32),
        rng.standard_normal((nodes, 3)).astype(np.float32),
        rng.integers(0, 4, nodes),
        {"train": np.arange(nodes) % 2 == 0},
    )


def test_a_shuffled_grid_gets_its_locality_back():
    grid = gtjax.load("grid:rows=50,columns=60")
    shuffled = grid.reordered(np.random.default_rng(0).permutation(grid.num_nodes))
    order_n = locality_order(shuffled)
    assert log_gap(shuffled) > 9
    assert log_gap(shuffled, order_n) == log_gap(shuffled.reordered(order_n))
    assert log_gap(shuffled, order_n) < 6  # the diagonals are up to 50 long


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 120))
def test_an_order_has_every_node_once(seed, nodes, edges):
    rng = np.random.default_rng(seed)
    graph = graph_of(rng.integers(0, nodes, edges), rng.integers(0, nodes, edges), nodes)
    np.testing.assert_array_equal(np.sort(locality_order(graph)), np.arange(nodes))


@given(st.integers(0, 2**32 - 1))
def test_a_reordered_graph_is_the_same_graph(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(rng.integers(0, 17, 60), rng.integers(0, 17, 60), 17)
    order_n = rng.permutation(17)
    moved = graph.reordered(order_n)
    np.testing.assert_array_equal(order_n[moved.senders_e], graph.senders_e)
    np.testing.assert_array_equal(order_n[moved.receivers_e], graph.receivers_e)
    np.testing.assert_array_equal(moved.x_nf, graph.x_nf[order_n])
    np.testing.assert_array_equal(moved.labels_n, graph.labels_n[order_n])
    np.testing.assert_array_equal(moved.split_n["train"], graph.split_n["train"][order_n])
    back = moved.reordered(inverse_order(order_n))
    assert back.fingerprint == graph.fingerprint

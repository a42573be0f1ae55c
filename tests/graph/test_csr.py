"""Compressed rows: against the naive grouping, in both directions, and at ten million edges."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.graph import csr
from gtjax.graph import graph as graph_module
from gtjax.graph.csr import stable_order, stable_pair_order
from tests.graph.graphs import edge_pairs, graphs, make_graph

KEYS = st.lists(st.integers(0, 20), max_size=60)


@given(graphs())
def test_rows_hold_the_edges_of_a_node_in_the_graphs_order(graph):
    pairs = edge_pairs(graph)
    for rows, row_end in ((graph.by_receiver, 1), (graph.by_sender, 0)):
        assert rows.offsets.dtype == np.int64
        assert rows.offsets[0] == 0
        assert rows.offsets[-1] == len(pairs)
        for node in range(graph.num_nodes):
            part = slice(rows.offsets[node], rows.offsets[node + 1])
            ids = [n for n, pair in enumerate(pairs) if pair[row_end] == node]
            assert rows.edge_ids_e[part].tolist() == ids
            assert rows.neighbours_e[part].tolist() == [pairs[n][1 - row_end] for n in ids]
            assert rows.degrees_n[node] == len(ids)


@given(KEYS)
def test_stable_order_is_a_stable_argsort(keys):
    keys_e = np.asarray(keys, np.int64)
    expected = np.argsort(keys_e, kind="stable")
    for num_keys in (21, 1000):
        assert stable_order(keys_e, num_keys).tolist() == expected.tolist()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_stable_pair_order_sorts_by_both_and_then_by_position(pairs):
    first, second = np.asarray(pairs, np.int32).reshape(-1, 2).T
    expected = sorted(range(len(pairs)), key=lambda n: (pairs[n], n))
    assert stable_pair_order(first, second, 5).tolist() == expected


def test_orders_do_not_change_their_input():
    keys = np.array([2, 0, 1, 0], np.int32)
    stable_order(keys, 3)
    assert keys.tolist() == [2, 0, 1, 0]


def test_rows_are_built_once_and_read_only(monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return csr.build_csr(*arguments)

    monkeypatch.setattr(graph_module, "build_csr", counted)
    graph = make_graph([0, 1], [1, 0], 2)
    assert graph.by_receiver is graph.by_receiver
    assert graph.by_sender is graph.by_sender
    assert len(calls) == 2
    for array in (graph.by_receiver.offsets, graph.by_receiver.neighbours_e):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@pytest.mark.slow
def test_ten_million_edges_take_seconds():
    num_nodes, num_edges = 1_000_000, 10_000_000
    senders, receivers = np.random.default_rng(0).integers(
        num_nodes, size=(2, num_edges), dtype=np.int32
    )
    graph = make_graph(senders, receivers, num_nodes)
    started = time.perf_counter()
    rows = graph.by_receiver
    assert time.perf_counter() - started < 15
    assert (np.diff(receivers[rows.edge_ids_e]) >= 0).all()
    assert np.array_equal(rows.degrees_n, np.bincount(receivers, minlength=num_nodes))
    started = time.perf_counter()
    assert graph.symmetrised().is_symmetric
    assert time.perf_counter() - started < 30

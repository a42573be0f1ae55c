"""What crosses between parts, counted against sets."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.core.errors import UserError
from gtjax.partition import CutStats, Partition, cut, cut_stats
from tests.graph.graphs import edge_pairs, make_graph
from tests.partition.partitions import partitioned_graphs


def brute_force(graph, partition):
    """Edges and halos of every pair of parts, by sets."""
    parts = range(partition.num_parts)
    owner = partition.owner_n.tolist()
    edges = [[0 for _ in parts] for _ in parts]
    halos = [[set() for _ in parts] for _ in parts]
    for sender, receiver in edge_pairs(graph):
        edges[owner[receiver]][owner[sender]] += 1
        if owner[receiver] != owner[sender]:
            halos[owner[receiver]][owner[sender]].add(sender)
    return edges, [[len(halo) for halo in row] for row in halos]


@given(partitioned_graphs(), st.sampled_from([1, 3, cut._BLOCK]))
def test_counts_are_those_of_sets(case, block):
    graph, partition = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "_BLOCK", block)
        stats = partition.cut(graph)
    edges, halo = brute_force(graph, partition)
    assert stats.edges_pq.tolist() == edges
    assert stats.halo_pq.tolist() == halo
    assert stats.nodes_p.tolist() == partition.sizes_p.tolist()
    for array in (stats.nodes_p, stats.edges_pq, stats.halo_pq):
        assert array.dtype == np.int64


@given(partitioned_graphs())
def test_totals_follow_from_the_counts(case):
    graph, partition = case
    stats = partition.cut(graph)
    owner_n = partition.owner_n
    crossing = np.count_nonzero(owner_n[graph.senders_e] != owner_n[graph.receivers_e])
    assert stats.num_edges == graph.num_edges
    assert stats.num_nodes == graph.num_nodes
    assert stats.cut == (crossing / graph.num_edges if graph.num_edges else 0.0)
    assert stats.cut_edges_p.sum() == crossing
    degrees_n = graph.by_receiver.degrees_n
    in_edges = [degrees_n[owner_n == part].sum() for part in range(partition.num_parts)]
    assert stats.edges_p.tolist() == in_edges
    assert (np.diagonal(stats.halo_pq) == 0).all()
    assert (stats.halo_pq <= stats.edges_pq).all()  # a needed node sends at least one edge
    assert (stats.halo_pq <= stats.nodes_p[None, :]).all()
    assert stats.edge_imbalance >= 1
    assert stats.node_imbalance >= 1


@given(partitioned_graphs(), st.randoms(use_true_random=False))
def test_reordering_the_counts_is_renumbering_the_parts(case, random):
    graph, partition = case
    order_p = list(range(partition.num_parts))
    random.shuffle(order_p)
    number_p = np.argsort(order_p)
    renumbered = Partition(number_p[partition.owner_n], partition.num_parts)
    assert partition.cut(graph).reordered(order_p).to_json() == renumbered.cut(graph).to_json()


@given(partitioned_graphs())
def test_json_keeps_everything(case):
    graph, partition = case
    stored = partition.cut(graph).to_json()
    assert CutStats.from_json(json.loads(json.dumps(stored))).to_json() == stored


def test_imbalance_is_largest_over_mean():
    graph = make_graph([1, 2, 3, 0], [0, 0, 0, 3], 4)
    stats = cut_stats(graph, np.array([0, 0, 0, 1]), 2)
    assert stats.edges_p.tolist() == [3, 1]
    assert stats.edge_imbalance == 1.5
    assert stats.node_imbalance == 1.5
    assert stats.cut == 0.5
    assert stats.halo_p.tolist() == [1, 1]
    assert "cut 0.5000" in repr(stats)


def test_without_edges_nothing_is_cut_and_balance_is_perfect():
    stats = cut_stats(make_graph([], [], 3), np.array([0, 1, 1]), 4)
    assert (stats.cut, stats.edge_imbalance) == (0.0, 1.0)
    assert stats.nodes_p.tolist() == [1, 2, 0, 0]


def test_an_order_that_is_none_is_named():
    stats = cut_stats(make_graph([], [], 3), np.array([0, 1, 1]), 2)
    with pytest.raises(UserError, match=r"each of 0\.\.1 once; found \[0, 0\]"):
        stats.reordered([0, 0])


def test_counts_of_the_wrong_shape_are_named():
    square = np.zeros((2, 2), int)
    with pytest.raises(UserError, match=r"halo_pq counts in integers \[2, 2\]; found int64 \[2\]"):
        CutStats(np.zeros(2, int), square, np.zeros(2, int))
    with pytest.raises(UserError, match=r"edges_pq counts in integers \[2, 2\]; found float64"):
        CutStats(np.zeros(2, int), square / 2, square)

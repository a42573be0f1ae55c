"""Draws of parts from clusters: whole clusters, balanced, within bounds, and repeatable."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.graph import GENERATORS
from gtjax.partition import Partition, Regrouping, partition_graph, regroup
from gtjax.partition.regroup import deal
from tests.graph.graphs import edge_pairs
from tests.partition.partitions import partitioned_graphs

items = st.lists(st.floats(0, 1e6), max_size=40).map(np.array)


@given(items, st.integers(1, 9), st.integers(0, 99))
def test_dealing_gives_every_part_equally_many_items_and_nearly_equal_work(work, parts, seed):
    part_c = deal(work, parts, np.random.default_rng(seed))
    assert part_c.shape == work.shape
    counts = np.bincount(part_c, minlength=parts)
    assert len(counts) == parts
    assert counts.max() - counts.min() <= 1
    loads = np.bincount(part_c, work, parts)
    assert loads.max() - loads.min() <= work.max(initial=0) * (1 + 1e-9)


@given(partitioned_graphs(max_parts=7), st.integers(1, 4), st.integers(0, 5), st.integers(0, 40))
def test_a_draw_keeps_clusters_whole_and_fits_the_bounds(case, parts, seed, number):
    graph, clusters = case
    regrouping = Regrouping(graph, clusters, parts, seed)
    drawn = list(regrouping.partitions(number))
    assert drawn
    for partition in (drawn[0], drawn[-1]):
        assert partition.num_parts == parts
        for cluster in range(clusters.num_parts):
            assert len(set(partition.owner_n[clusters.owner_n == cluster])) <= 1
        owner = partition.owner_n.tolist()
        within = [0] * parts
        for sender, receiver in edge_pairs(graph):
            within[owner[sender]] += owner[sender] == owner[receiver]
        assert partition.sizes_p.max() < regrouping.bounds.nodes  # so there is always padding
        assert max(within) <= regrouping.bounds.edges


@given(partitioned_graphs(max_parts=7), st.integers(0, 5), st.integers(0, 40))
def test_a_draw_is_a_function_of_the_seed_and_its_number(case, seed, number):
    graph, clusters = case
    first, again = (next(Regrouping(graph, clusters, 3, seed).partitions(number)) for _ in "ab")
    assert first.fingerprint == again.fingerprint


@pytest.fixture(scope="module")
def graph():
    return GENERATORS["rmat"](nodes=997, edges=6000, seed=3)


def test_draws_differ_by_number_and_seed_and_bring_every_two_clusters_together(graph):
    clusters = partition_graph(graph, 24, "random")
    draws = [next(Regrouping(graph, clusters, 4).partitions(number)) for number in range(40)]
    assert len({draw.fingerprint for draw in draws}) == 40
    other = next(Regrouping(graph, clusters, 4, seed=1).partitions(0))
    assert other.fingerprint != draws[0].fingerprint
    first_n = [int(np.flatnonzero(clusters.owner_n == cluster)[0]) for cluster in range(24)]
    met = np.zeros((24, 24), bool)
    for draw in draws:
        part_c = draw.owner_n[first_n]
        met |= part_c[:, None] == part_c
    assert met.all()


def test_a_draw_that_does_not_fit_is_replaced_by_one_that_does(graph, monkeypatch):
    """Bounds of a single draw with no room are exceeded by many others."""
    monkeypatch.setattr(regroup, "FIRST_DRAWS", 1)
    monkeypatch.setattr(regroup, "ROOM", 1.0)
    clusters = partition_graph(graph, 16, "contiguous")
    regrouping = Regrouping(graph, clusters, 4)
    replaced = 0
    for number in range(30):
        partition = next(regrouping.partitions(number))
        unlimited = regrouping._draw(number)[clusters.owner_n]
        replaced += not np.array_equal(partition.owner_n, unlimited)
        within = np.diagonal(partition.cut(graph).edges_pq)
        assert partition.sizes_p.max() <= regrouping.bounds.nodes
        assert within.max() <= regrouping.bounds.edges
    assert 0 < replaced < 30


def test_the_last_offer_is_the_first_draw(graph, monkeypatch):
    """What shapes are made for, whoever finds all others too large."""
    monkeypatch.setattr(regroup, "ATTEMPTS", 3)
    regrouping = Regrouping(graph, partition_graph(graph, 16, "random"), 4)
    *others, last = regrouping.partitions(5)
    assert len(others) <= 3
    assert last.fingerprint == next(regrouping.partitions(0)).fingerprint


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 8))
def test_parts_are_balanced_in_nodes_and_in_edges(nodes_of_each, parts):
    """Clusters of equal size and equally many in-edges make parts of equal size."""
    clusters = Partition(np.repeat(np.arange(3 * parts), nodes_of_each), 3 * parts)
    nodes = len(clusters.owner_n)
    ring = GENERATORS["grid"](rows=1, columns=nodes) if nodes > 1 else None
    if ring is None:
        return
    for partition in itertools.islice(Regrouping(ring, clusters, parts).partitions(2), 2):
        assert (partition.sizes_p == 3 * nodes_of_each).all()

"""Coverage and the weights that correct it: counted by hand, and the laws all of them obey."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.batching.coverage import WEIGHTS, Coverage, distance, importance, shrinkage
from gtjax.partition import Partition
from tests.graph.graphs import edge_pairs
from tests.partition.partitions import partitioned_graphs
from tests.strategies.on_devices import graph_of

every_form = pytest.mark.parametrize("how", list(WEIGHTS))


@st.composite
def covered(draw):
    """A partitioned graph, and which of its nodes count."""
    graph, partition = draw(partitioned_graphs())
    size = {"min_size": graph.num_nodes, "max_size": graph.num_nodes}
    return graph, partition, np.array(draw(st.lists(st.booleans(), **size)), bool)


@given(covered())
def test_counts_are_those_of_the_edges_one_by_one(case):
    graph, partition, counted_n = case
    owner = partition.owner_n.tolist()
    seen, everything = ([1] * graph.num_nodes for _ in "ab")
    for sender, receiver in edge_pairs(graph):
        if sender != receiver:
            everything[receiver] += 1
            seen[receiver] += owner[sender] == owner[receiver]
    coverage = Coverage.of(graph, partition, counted_n)
    assert coverage.seen_n.tolist() == np.array(seen)[counted_n].tolist()
    assert coverage.all_n.tolist() == np.array(everything)[counted_n].tolist()
    summary = coverage.summary
    assert 0 < summary["min"] <= summary["mean"] <= summary["max"] <= 1 + 1e-12


@every_form
@given(case=covered())
def test_weights_are_positive_and_have_mean_one_over_the_counted_nodes(case, how):
    graph, partition, counted_n = case
    weight_p = WEIGHTS[how](Coverage.of(graph, partition, counted_n))
    assert weight_p.shape == (partition.num_parts,)
    assert np.isfinite(weight_p).all()
    assert (weight_p > 0).all()
    if counted_n.any():
        assert weight_p[partition.owner_n[counted_n]].mean() == pytest.approx(1)


@every_form
@given(case=covered())
def test_where_nothing_is_cut_all_weights_are_one(case, how):
    graph, partition, counted_n = case
    near_e = partition.owner_n[graph.senders_e] == partition.owner_n[graph.receivers_e]
    whole = graph_of(graph.senders_e[near_e], graph.receivers_e[near_e], graph.num_nodes)
    coverage = Coverage.of(whole, partition, counted_n)
    np.testing.assert_allclose(WEIGHTS[how](coverage), 1)
    assert coverage.summary == {"mean": 1.0, "min": 1.0, "max": 1.0}


@given(covered())
def test_distance_is_nearest_to_the_inverse_coverages_of_the_nodes(case):
    """Before it is divided by the mean, no other weight of a part is nearer."""
    graph, partition, counted_n = case
    coverage = Coverage.of(graph, partition, counted_n)
    inverse_n, weight_p = coverage.all_n / coverage.seen_n, distance(coverage)
    if not len(inverse_n):
        return
    weight_p = weight_p * inverse_n.mean()  # the mean over nodes of the means of parts
    for part in range(partition.num_parts):
        mine = inverse_n[coverage.part_n == part]
        off = [np.square(weight_p[part] + step - mine).sum() for step in (-0.01, 0, 0.01)]
        assert min(off) == off[1]


@given(covered())
def test_shrinkage_lies_between_one_and_distance(case):
    """Up to the division by their means, which both have had."""
    coverage = Coverage.of(*case)
    far_p, near_p = distance(coverage) - 1, shrinkage(coverage) - 1
    assert np.abs(near_p).max() <= np.abs(far_p).max() + 0.5 * np.square(far_p).max() + 1e-9


def star(leaves, near):
    """A hub that hears `leaves` leaves of which `near` are in its part, beside a whole part."""
    senders = [*range(1, leaves + 1), leaves + 1]
    graph = graph_of(np.array(senders), np.array([0] * leaves + [leaves + 2]), leaves + 3)
    owner_n = np.array([0] * (near + 1) + [2] * (leaves - near) + [1, 1])
    counted_n = np.zeros(leaves + 3, bool)
    counted_n[[0, leaves + 2]] = True
    return Coverage.of(graph, Partition(owner_n, 3), counted_n)


def test_the_part_that_sees_less_counts_more():
    coverage = star(leaves=9, near=4)
    np.testing.assert_allclose(coverage.share_p, [5 / 10, 1, 1])
    assert coverage.summary == {"mean": 7 / 12, "min": 0.5, "max": 1.0}
    for how in (importance, distance, shrinkage):  # one node a part: no doubt to shrink by
        np.testing.assert_allclose(how(coverage)[:2], [4 / 3, 2 / 3])


def test_a_node_that_sees_nobody_has_a_finite_weight():
    coverage = star(leaves=9, near=0)
    np.testing.assert_allclose(importance(coverage)[:2], [20 / 11, 2 / 11])


def test_shrinkage_trusts_parts_whose_nodes_agree_more_than_those_that_do_not():
    """Two parts of equal mean, one of nodes that are all alike; a third makes a difference."""
    seen_n = np.array([2, 2, 2, 2, 4, 4, 4, 4 / 3, 4, 4, 4, 4])
    part_n = np.repeat([0, 1, 2], 4)
    agree_n = np.where(part_n == 1, np.array([4, 4 / 5] * 6), seen_n)
    coverage = Coverage(agree_n, np.full(12, 4), part_n, 3)
    np.testing.assert_allclose(distance(coverage), [6 / 6, 9 / 6, 3 / 6], rtol=1e-6)
    sure, unsure, certain = shrinkage(coverage)
    assert 1 < unsure < 1.5 * 0.9
    assert certain < sure

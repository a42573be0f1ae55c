"""Cuts of fewer parts, and cuts that are only supposed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.graph import GENERATORS
from gtjax.partition import EvenCut
from gtjax.planner import GraphCuts, SupposedCuts
from gtjax.strategies import STRATEGIES, MeshShape, op_work
from pallas_kernels import DOT_PRODUCT

GRAPH = GENERATORS["grid"](rows=23, columns=29).symmetrised()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_joined_parts_are_a_partition_of_the_graph(count):
    cuts = GraphCuts(GRAPH)
    cut = cuts.parts("contiguous", count, 12).cut
    assert cut.num_parts == count
    assert cut.num_nodes == GRAPH.num_nodes
    assert cut.num_edges == GRAPH.num_edges
    assert cut.cut <= cuts.exact("contiguous", 12).cut.cut


def test_joining_keeps_together_what_belongs_together():
    """Stripes of a grid: neighbours are joined, so the cut is that of wider stripes."""
    cuts = GraphCuts(GRAPH)
    joined, direct = (
        each.cut for each in (cuts.parts("contiguous", 4, 8), cuts.exact("contiguous", 4))
    )
    assert joined.cut <= 1.6 * direct.cut


def test_what_the_partitioner_makes_takes_the_place_of_what_was_joined():
    cuts = GraphCuts(GRAPH)
    assert cuts.parts("contiguous", 4, 8).partition is None
    made = cuts.exact("contiguous", 4)
    assert made.partition is not None
    assert cuts.parts("contiguous", 4, 8) is made


@given(
    st.integers(2, 10**9),
    st.integers(1, 10**12),
    st.one_of(st.none(), st.floats(0, 1)),
    st.sampled_from([2, 8, 64, 4096]),
)
def test_a_supposed_halo_is_possible(nodes, edges, cut, count):
    low, usual, high = (
        SupposedCuts(nodes, edges, cut, bend).parts("supposed", count, count).cut.halo
        for bend in (0.0, 0.5, 1.0)
    )
    assert 0 <= low <= usual * (1 + 1e-9)
    assert usual <= high * (1 + 1e-9)
    assert high <= nodes


@pytest.mark.parametrize("name", ["node_halo", "node_ring", "node_all_gather", "single"])
def test_an_even_cut_demands_what_a_counted_one_does(name):
    """A graph that is the same seen from every part: counted and supposed have to agree."""
    parts, rows, links = 6, 50, 4
    rows_nhd = np.zeros((1, 2, 8), np.float32)
    work = op_work(DOT_PRODUCT, rows_nhd, (rows_nhd, rows_nhd), None, None)
    mesh = MeshShape(parts)
    halo_pq = np.full((parts, parts), links) * (1 - np.eye(parts, dtype=int))
    edges_pq = halo_pq * 3 + np.eye(parts, dtype=int) * 200
    from gtjax.partition import CutStats

    counted = CutStats(np.full(parts, rows), edges_pq, halo_pq)
    supposed = EvenCut(
        parts, parts * rows, counted.num_edges, counted.cut, float(counted.halo_p.max())
    )
    strategy = STRATEGIES[name]
    one, other = (strategy.demand(cut, work, mesh) for cut in (counted, supposed))
    assert one.bytes_moved == other.bytes_moved
    assert one.held == other.held
    edges = [sum(each.edges for each in demand.passes) for demand in (one, other)]
    assert edges[0] == pytest.approx(edges[1], rel=0.01)
    assert strategy.padded_edges(supposed, mesh) == pytest.approx(
        strategy.padded_edges(counted, mesh), rel=0.02
    )

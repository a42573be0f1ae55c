"""Every partitioner: every node has an owner, parts are balanced, and the seed decides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.partition import PARTITIONERS, Partition, metis, partition_graph, partitioners, streaming
from gtjax.partition.balance import split_evenly
from tests.graph.graphs import graphs, make_graph

CITATION = GENERATORS["synthetic-citation"](nodes=2003, mean_degree=8.0, features=1)
POWER_LAW = GENERATORS["rmat"](nodes=4001, edges=40000, features=1)
GRID = GENERATORS["grid"](rows=40, columns=50, features=1)

AWKWARD = {
    "one node": make_graph([], [], 1),
    "one node that talks to itself": make_graph([0, 0], [0, 0], 1),
    "no edges": make_graph([], [], 13),
    "only self-loops": make_graph(range(13), range(13), 13),
    "one edge": make_graph([0], [1], 13),
    "a star": make_graph([*range(1, 101)] + [0] * 100, [0] * 100 + [*range(1, 101)], 101),
    "a star that only receives": make_graph(range(1, 101), [0] * 100, 101),
    "multi-edges": make_graph([0, 1, 2] * 30, [1, 2, 0] * 30, 7),
    "two components": make_graph([0, 1, 3, 4] * 9, [1, 0, 4, 3] * 9, 5),
}


ANY_GRAPH = [name for name in PARTITIONERS if name != "graphs"]


@pytest.fixture(params=ANY_GRAPH)
def how(request):
    if request.param == "metis" and not metis.is_installed():
        pytest.skip("pymetis is not installed")
    return request.param


@pytest.mark.parametrize("graph", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_awkward_graphs_get_an_owner_for_every_node(how, graph, num_parts):
    partition = partition_graph(graph, num_parts, how)
    assert partition.num_nodes == graph.num_nodes
    assert partition.num_parts == num_parts
    assert partition.sizes_p.sum() == graph.num_nodes


@given(graphs(), st.integers(1, 5), st.integers(0, 3))
@pytest.mark.parametrize("name", ["streaming", "contiguous", "random"])
def test_any_graph_gets_an_owner_for_every_node(name, graph, num_parts, seed):
    partition = partition_graph(graph, num_parts, name, seed=seed)
    assert partition.num_nodes == graph.num_nodes
    assert partition.cut(graph).num_edges == graph.num_edges


@pytest.mark.parametrize("graph", [CITATION, POWER_LAW, GRID], ids=lambda graph: graph.name)
def test_edges_are_balanced(how, graph):
    stats = partition_graph(graph, 4, how).cut(graph)
    assert stats.edge_imbalance <= 1.05
    assert stats.node_imbalance <= 2.5


def test_the_seed_decides(how):
    first, again, other = (partition_graph(CITATION, 4, how, seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint
    if how != "contiguous":
        assert first.fingerprint != other.fingerprint


def test_structure_is_found_where_there_is_some():
    shuffled = GRID.reordered(np.random.default_rng(0).permutation(GRID.num_nodes))
    cuts = {name: partition_graph(shuffled, 4, name).cut(shuffled).cut for name in ANY_GRAPH
            if name != "metis" or metis.is_installed()}  # fmt: skip
    assert 0.7 < cuts["random"] < 0.8
    assert 0.7 < cuts["contiguous"] < 0.8  # shuffled numbers mean nothing
    assert cuts["streaming"] < 0.12
    assert cuts.get("metis", 0.0) < 0.06
    assert partition_graph(GRID, 4, "contiguous").cut(GRID).cut < 0.05


def test_directed_edges_hold_a_part_together_from_both_ends():
    up = CITATION.senders_e < CITATION.receivers_e
    graph = make_graph(CITATION.senders_e[up], CITATION.receivers_e[up], CITATION.num_nodes)
    for name in ("streaming", "metis") if metis.is_installed() else ("streaming",):
        stats = partition_graph(graph, 4, name).cut(graph)
        assert stats.cut < 0.45  # 0.75 at random
        assert stats.edge_imbalance <= 1.05


@pytest.mark.parametrize("name", ["metis", "streaming"])
def test_real_graphs_reach_the_targets(real_graphs, name):
    if name == "metis" and not metis.is_installed():
        pytest.skip("pymetis is not installed")
    from gtjax.datasets import load

    graph = load(real_graphs / "ogbn-arxiv.npz").symmetrised().with_self_loops()
    stats = partition_graph(graph, 8, name).cut(graph)
    assert stats.cut < {"metis": 0.2, "streaming": 0.36}[name]
    assert stats.edge_imbalance <= 1.05
    assert stats.node_imbalance <= 1.55


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=50), st.integers(1, 9))
@settings(max_examples=50)
def test_a_sequence_is_split_within_one_item(weights, num_parts):
    weight_n = np.array(weights)
    part_n = split_evenly(weight_n, num_parts)
    assert (np.diff(part_n) >= 0).all()
    assert 0 <= part_n[0] <= part_n[-1] < num_parts
    loads = np.bincount(part_n, weight_n, num_parts)
    assert loads.max() <= weight_n.sum() / num_parts + weight_n.max() + 1e-9


def test_auto_is_metis_for_what_it_can_take_and_balance(monkeypatch):
    calls = []
    even = np.arange(GRID.num_nodes, dtype=np.int32) % 4

    def answer_with(owner_n):
        for name in PARTITIONERS:
            answer = Partition(owner_n.astype(np.int32), 4)
            monkeypatch.setitem(
                PARTITIONERS, name, lambda *_, n=name, a=answer, **__: calls.append(n) or a
            )

    answer_with(even)
    monkeypatch.setattr(partitioners, "is_installed", lambda: True)
    partition_graph(GRID, 4)
    monkeypatch.setattr(partitioners, "MOST_METIS_EDGES", GRID.num_edges - 1)
    partition_graph(GRID, 4)
    monkeypatch.setattr(partitioners, "MOST_METIS_EDGES", GRID.num_edges)
    monkeypatch.setattr(partitioners, "is_installed", lambda: False)
    partition_graph(GRID, 4)
    assert calls == ["metis", "streaming", "streaming"]
    calls.clear()
    monkeypatch.setattr(partitioners, "is_installed", lambda: True)
    answer_with(np.where(np.arange(GRID.num_nodes) < 0.6 * GRID.num_nodes, 0, even))
    partition_graph(GRID, 4)
    assert calls == ["metis", "streaming"]


def test_an_unknown_partitioner_is_named():
    with pytest.raises(UserError, match=r"one of auto, metis, streaming, .*; found 'kahip'"):
        partition_graph(GRID, 2, "kahip")
    with pytest.raises(UserError, match="1 to 8192 parts; found 0"):
        partition_graph(GRID, 0)


def test_progress_ends_at_one(how):
    seen = []
    partition_graph(CITATION, 4, how, progress=lambda done, text: seen.append(done))
    if how in ("metis", "streaming"):
        assert seen[-1] == 1.0
        assert seen == sorted(seen)


def test_streaming_reads_as_often_as_it_says(monkeypatch):
    reads = []

    def chunks():
        reads.append(1)
        yield CITATION.senders_e, CITATION.receivers_e

    streaming.stream_partition(chunks, CITATION.num_nodes, 4)
    assert streaming.READS == 7
    assert streaming.READS <= len(reads) <= streaming.READS + 2

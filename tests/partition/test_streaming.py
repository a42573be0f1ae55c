"""Streams: any order and size of chunks, one direction or both, and never all edges at once."""

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.partition import Partition, choices, multilevel, native, pairs, stream_partition
from gtjax.partition.label_propagation import _tally, propagate
from gtjax.partition.labels import Labels

needs_native = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
GRAPH = GENERATORS["synthetic-citation"](nodes=3001, mean_degree=10.0, features=1)


def chunks_of(senders, receivers, size):
    def chunks():
        for start in range(0, len(senders), size):
            yield senders[start : start + size], receivers[start : start + size]

    return chunks


ORDERS = {
    "by receiver": GRAPH.by_receiver.edge_ids_e,
    "by sender": GRAPH.by_sender.edge_ids_e,
    "in no order": np.random.default_rng(0).permutation(GRAPH.num_edges),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [97, 10**9])
def test_any_order_of_the_edges_is_cut_well(order, size):
    ids = ORDERS[order]
    chunks = chunks_of(GRAPH.senders_e[ids], GRAPH.receivers_e[ids], size)
    stats = stream_partition(chunks, GRAPH.num_nodes, 4).cut(GRAPH)
    assert stats.cut < 0.5  # 0.75 at random
    assert stats.edge_imbalance <= 1.05


def test_the_size_of_chunks_does_not_matter():
    ids = ORDERS["by receiver"]
    ends = GRAPH.senders_e[ids], GRAPH.receivers_e[ids]
    small, large = (stream_partition(chunks_of(*ends, n), GRAPH.num_nodes, 4) for n in (101, 10**9))
    assert small.fingerprint == large.fingerprint


def test_one_direction_is_read_both_ways():
    up = GRAPH.senders_e < GRAPH.receivers_e
    chunks = chunks_of(GRAPH.senders_e[up], GRAPH.receivers_e[up], 1000)
    partition = stream_partition(chunks, GRAPH.num_nodes, 4, symmetric=False)
    assert partition.cut(GRAPH).cut < 0.5


def test_empty_streams_and_chunks():
    nothing = np.zeros(0, np.int32)
    assert stream_partition(lambda: iter([]), 5, 2).num_nodes == 5
    partition = stream_partition(lambda: iter([(nothing, nothing)] * 3), 7, 2)
    assert isinstance(partition, Partition)
    assert partition.sizes_p.max() <= 5


@pytest.mark.parametrize(
    ("senders", "receivers", "said"),
    [
        ([0, 9], [1, 2], r"senders of a chunk are in 0\.\.4; found 9"),
        ([0, 1], [1, -1], r"receivers of a chunk are in 0\.\.4; found -1"),
        ([0], [1, 2], r"found shapes \[1\] and \[2\]"),
        ([0.5], [1.0], r"integers; found float64"),
    ],
)
def test_a_bad_chunk_is_named(senders, receivers, said):
    with pytest.raises(UserError, match=said):
        stream_partition(lambda: iter([(np.array(senders), np.array(receivers))]), 5, 2)


def test_a_stream_that_changes_between_reads_is_found_out():
    good, reads = (np.array([0, 1]), np.array([1, 0])), []

    def chunks():
        reads.append(1)
        yield good if len(reads) == 1 else (np.array([7]), np.array([0]))

    with pytest.raises(UserError, match="found 7"):
        stream_partition(chunks, 5, 2)


@pytest.mark.parametrize("uses_native", [pytest.param(True, marks=needs_native), False])
def test_state_is_bounded_by_the_nodes(uses_native, monkeypatch):
    """However scattered the stream, neither votes nor pairs of clusters grow with the edges."""
    monkeypatch.setattr(multilevel, "CHUNK_EDGES", 1 << 10)
    monkeypatch.setattr("gtjax.partition.label_propagation.KEPT_VOTES", 1)
    monkeypatch.setattr(multilevel, "KEPT_PAIRS", 1)
    if not uses_native:
        without_native(monkeypatch)
    sizes = []
    heaviest = pairs._heaviest

    def recorded(key_q, weight_q, most):
        result = heaviest(key_q, weight_q, most)
        sizes.append((len(key_q), len(result[0]), most))
        return result

    monkeypatch.setattr(pairs, "_heaviest", recorded)
    ids = ORDERS["in no order"]
    chunks = chunks_of(GRAPH.senders_e[ids], GRAPH.receivers_e[ids], 500)
    stats = stream_partition(chunks, GRAPH.num_nodes, 4).cut(GRAPH)
    assert any(after == most for _, after, most in sizes)  # some were forgotten
    chunk = max(multilevel.CHUNK_EDGES, GRAPH.num_nodes // 2)
    assert all(before <= pairs.FORGETS * most + chunk for before, _, most in sizes)
    assert stats.cut < 0.6
    assert stats.edge_imbalance <= 1.05


@needs_native
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kept", [1, 4])
def test_native_code_and_numpy_cut_the_same(order, kept, monkeypatch):
    """With several threads, rows cut by chunks, pairs forgotten and tables that grow."""
    monkeypatch.setattr(multilevel, "CHUNK_EDGES", 1 << 11)
    monkeypatch.setattr(multilevel, "KEPT_PAIRS", kept)
    monkeypatch.setattr(choices, "THREADED_EDGES", 100)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    ids = ORDERS[order]
    chunks = chunks_of(GRAPH.senders_e[ids], GRAPH.receivers_e[ids], 700)
    found = stream_partition(chunks, GRAPH.num_nodes, 5)
    without_native(monkeypatch)
    assert stream_partition(chunks, GRAPH.num_nodes, 5).fingerprint == found.fingerprint


@needs_native
def test_rows_with_hubs_weights_and_nodes_without_edges():
    """One round, choice by choice, of a level whose edges weigh."""
    rng, nodes = np.random.default_rng(3), 53
    receivers = np.sort(np.concatenate([np.zeros(200, int), rng.integers(0, nodes - 3, 400)]))
    chunk = choices.Chunk(receivers, rng.integers(0, nodes, 600), rng.integers(1, 9, 600))
    weight_nc = np.stack([np.bincount(receivers, minlength=nodes), np.ones(nodes)], axis=1)
    for count, capacity_c in ((4, [160.0, 14.0]), (nodes, [250.0, 2.0])):
        label_n = rng.integers(0, count, nodes)
        labels = Labels(label_n, weight_nc.astype(float), np.array(capacity_c), count)
        degree_n, lots = np.bincount(receivers, minlength=nodes), np.uint64(7)
        found, rest = choices.choices_of_rows(chunk, degree_n, labels, lots)
        assert not len(rest.receivers)
        votes = _tally(
            receivers,
            labels.label_n[chunk.senders],
            chunk.weights,
            choices.Votes(*(np.zeros(0, np.int64) for _ in range(3))),
            count,
        )
        for got, want in zip(found, choices.choices_of_votes(votes, labels, lots), strict=True):
            np.testing.assert_array_equal(got, want)
        assert (found.label_d == -1).any()  # some find no room


@needs_native
def test_native_code_checks_node_numbers_before_it_follows_them():
    labels = Labels(np.arange(5), np.ones((5, 2)), np.ones(2), 5)
    chunk = choices.Chunk(np.array([1, 9]), np.array([0, 1]), np.ones(2, np.int64))
    with pytest.raises(UserError, match=r"0\.\.4"):
        choices.choices_of_rows(chunk, np.ones(5, np.int64), labels, np.uint64(0))
    with pytest.raises(UserError, match=r"0\.\.4"):
        pairs.count_pairs(lambda: iter([chunk]), np.arange(5), 5, 10)


def without_native(monkeypatch):
    for module in ("label_propagation", "choices", "pairs"):
        monkeypatch.setattr(f"gtjax.partition.{module}.library", lambda: None)


def test_the_leaves_of_a_star_are_packed_together():
    """Their only neighbour's cluster is soon full, and alone they would keep the graph large."""
    leaves, hub = np.arange(1, 3001), np.zeros(3000, int)
    receivers, senders = np.concatenate([hub, leaves]), np.concatenate([leaves, hub])

    def chunks():
        yield receivers, senders, np.ones(6000, np.int64)

    level = multilevel.Level(chunks, np.bincount(receivers), np.ones((3001, 1)))
    label_n = multilevel._pack(level, np.array([100.0]))
    sizes = np.bincount(label_n)
    assert len(sizes) == 32  # the hub, and the leaves by hundreds, the first bin one short
    assert sizes.max() <= 101
    assert sizes[label_n[0]] == 1


def test_a_round_moves_a_node_to_its_neighbours_and_keeps_to_the_capacity():
    # Nodes 0 to 3 know each other; 0 has a label of its own.
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    receivers, senders = np.array(sorted(pairs)).T

    def chunks():
        yield receivers, senders, np.ones(12, np.int64)

    for capacity, wanted in ((4.0, [1, 1, 1, 1]), (3.0, [0, 1, 1, 1])):
        labels = Labels(np.array([0, 1, 1, 1]), np.ones((4, 1)), np.array([capacity]), 2)
        propagate(chunks, np.full(4, 3), labels, np.random.default_rng(0))
        assert labels.label_n.tolist() == wanted
        assert labels.load_lc[:, 0].tolist() == np.bincount(wanted, minlength=2).tolist()


def test_a_part_that_is_too_full_gives_away_what_costs_least():
    # 0-1-2-3-4 in a row, all in part 0; 5 in part 1, a neighbour of 4.
    row = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])
    receivers, senders = np.concatenate([row, row[:, ::-1]]).T
    order = np.argsort(receivers, kind="stable")

    def chunks():
        yield receivers[order], senders[order], np.ones(10, np.int64)

    labels = Labels(np.array([0, 0, 0, 0, 0, 1]), np.ones((6, 1)), np.array([4.0]), 2)
    propagate(chunks, np.bincount(receivers), labels, np.random.default_rng(0), relieve=True)
    assert labels.label_n.tolist() == [0, 0, 0, 0, 1, 1]

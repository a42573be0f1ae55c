"""Streams: any order and size of chunks, one direction or both, and never all edges at once."""

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import GENERATORS
from gtjax.partition import Partition, multilevel, stream_partition
from gtjax.partition.label_propagation import Labels, propagate

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


def test_state_is_bounded_by_the_nodes(monkeypatch):
    """However scattered the stream, neither votes nor pairs of clusters grow with the edges."""
    monkeypatch.setattr(multilevel, "CHUNK_EDGES", 1 << 10)
    monkeypatch.setattr("gtjax.partition.label_propagation.KEPT_VOTES", 1)
    monkeypatch.setattr(multilevel, "KEPT_PAIRS", 1)
    sizes = []
    added_up = multilevel._added_up

    def recorded(keys, weights, most):
        result = added_up(keys, weights, most)
        sizes.append((sum(map(len, keys)), len(result[0]), most))
        return result

    monkeypatch.setattr(multilevel, "_added_up", recorded)
    ids = ORDERS["in no order"]
    chunks = chunks_of(GRAPH.senders_e[ids], GRAPH.receivers_e[ids], 500)
    stats = stream_partition(chunks, GRAPH.num_nodes, 4).cut(GRAPH)
    assert any(after == most for _, after, most in sizes)  # some were forgotten
    chunk = max(multilevel.CHUNK_EDGES, GRAPH.num_nodes // 2)
    assert all(before <= most + 2 * chunk for before, _, most in sizes)
    assert stats.cut < 0.6
    assert stats.edge_imbalance <= 1.05


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

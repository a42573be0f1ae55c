"""Graph: laws of its operations, fingerprints, and copies."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given

from gtjax.graph import Graph
from tests.graph.graphs import edge_pairs, graphs, make_graph


def edge_numbers(graph: Graph) -> list[float] | None:
    return None if graph.edge_x_ef is None else graph.edge_x_ef[:, 0].tolist()


@given(graphs())
def test_is_symmetric_means_that_every_edge_has_its_reverse(graph):
    pairs = set(edge_pairs(graph))
    assert graph.is_symmetric == all((receiver, sender) in pairs for sender, receiver in pairs)


@given(graphs())
def test_symmetrised_adds_exactly_the_missing_reverses(graph):
    result = graph.symmetrised()
    pairs = edge_pairs(graph)
    missing = [n for n, (s, r) in enumerate(pairs) if (r, s) not in pairs]
    assert edge_pairs(result) == pairs + [pairs[n][::-1] for n in missing]
    if graph.edge_x_ef is not None:
        assert edge_numbers(result) == [n + 1 for n in [*range(len(pairs)), *missing]]
    assert result.is_symmetric
    assert result.symmetrised() is result
    # What `symmetrised` notes as known has to be so for a graph that does not know it.
    assert dataclasses.replace(result).is_symmetric


@given(graphs())
def test_without_duplicate_edges_keeps_the_first_of_each(graph):
    result = graph.without_duplicate_edges()
    first = {}
    for number, pair in enumerate(edge_pairs(graph)):
        first.setdefault(pair, number)
    assert edge_pairs(result) == list(first)
    if graph.edge_x_ef is not None:
        assert edge_numbers(result) == [number + 1 for number in first.values()]
    assert result.without_duplicate_edges() is result
    assert result.is_symmetric == graph.is_symmetric


@given(graphs())
def test_self_loops_are_added_once_and_removed_all(graph):
    looped = graph.with_self_loops()
    pairs = edge_pairs(graph)
    absent = [n for n in range(graph.num_nodes) if (n, n) not in pairs]
    assert edge_pairs(looped) == pairs + [(n, n) for n in absent]
    assert looped.with_self_loops() is looped
    if graph.edge_x_ef is not None:
        assert edge_numbers(looped) == [*(edge_numbers(graph) or []), *[0.0] * len(absent)]
    bare = looped.without_self_loops()
    assert edge_pairs(bare) == [(s, r) for s, r in pairs if s != r]
    assert bare.without_self_loops() is bare
    assert bare.num_edges == 0 or edge_pairs(bare) == edge_pairs(graph.without_self_loops())


@given(graphs())
def test_operations_leave_the_nodes_alone(graph):
    for result in (graph.symmetrised(), graph.with_self_loops(), graph.without_duplicate_edges()):
        assert result.x_nf.tolist() == graph.x_nf.tolist()
        assert result.senders_e.dtype == result.receivers_e.dtype == np.int32
        assert result.name == graph.name


FULL = {
    "x_nf": np.eye(3, dtype=np.float32),
    "labels_n": np.array([0, 1, 1]),
    "split_n": {"train": np.array([True, False, False]), "val": np.array([False, True, False])},
    "edge_x_ef": np.array([[1.0], [2.0]]),
}


def full(**changes) -> Graph:
    fields = {"senders_e": [0, 1], "receivers_e": [1, 2]} | FULL | changes
    return Graph(**{k: np.array(v) if isinstance(v, list) else v for k, v in fields.items()})


@pytest.mark.parametrize(
    ("changes", "topology_changes"),
    [
        ({"senders_e": [0, 2]}, True),
        ({"senders_e": [1, 2], "receivers_e": [0, 1]}, True),
        ({"x_nf": np.eye(3)[::-1]}, False),
        ({"x_nf": np.eye(3, dtype=np.float16)}, False),
        ({"labels_n": np.array([0, 1, 0])}, False),
        ({"split_n": {"train": np.array([True, False, False])}}, False),
        ({"split_n": dict(zip(["val", "train"], FULL["split_n"].values(), strict=True))}, False),
        ({"edge_x_ef": np.array([[1.0], [3.0]])}, False),
        ({"edge_x_ef": None}, False),
    ],
)
def test_fingerprints_change_with_content(changes, topology_changes):
    graph, other = full(), full(**changes)
    assert graph.fingerprint != other.fingerprint
    assert (graph.topology_fingerprint != other.topology_fingerprint) == topology_changes


def test_fingerprints_do_not_change_without_content():
    graph = full()
    strided = np.zeros((3, 6), np.float32)
    strided[:, ::2] = np.eye(3)
    splits = FULL["split_n"]
    for same in (
        full(name="other"),
        full(senders_e=np.array([0, 1], np.int64)),
        full(x_nf=strided[:, ::2]),
        full(split_n={"val": splits["val"], "train": splits["train"]}),
    ):
        assert same.fingerprint == graph.fingerprint


def test_one_more_isolated_node_changes_the_topology():
    two, three = make_graph([0], [1], 2), make_graph([0], [1], 3)
    assert two.topology_fingerprint != three.topology_fingerprint


def test_copies_and_pickles_hold_the_same():
    graph = full(name="kept")
    for again in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert again.fingerprint == graph.fingerprint
        assert again.name == "kept"
        assert not again.x_nf.flags.writeable


def test_with_splits_replaces_the_masks():
    mask = np.array([False, False, True])
    graph = full().with_splits(test=mask)
    assert list(graph.split_n) == ["test"]
    assert graph.split_n["test"].tolist() == mask.tolist()


def test_repr_tells_the_sizes():
    assert repr(full(name="tiny")) == "Graph('tiny', 3 nodes, 2 edges, 3 features, 2 classes)"
    many = full(labels_n=np.ones((3, 4), int))
    assert repr(many).endswith("4 tasks)")

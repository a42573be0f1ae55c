"""Many graphs as one: joined, stored, copied, and what does not fit together."""

import dataclasses
import pickle

import numpy as np
import pytest

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import load, save_npz
from gtjax.graph import Graph, ManyGraphs, Names, from_edges, many_graphs, statistics
from tests.graph.graphs import edge_pairs


def triangle(width=2, edge_width=1):
    edge_x = np.ones((3, edge_width)) if edge_width else None
    return from_edges([(0, 1), (1, 2), (2, 0)], x_nf=np.ones((3, width)), edge_x_ef=edge_x)


def pair():
    return from_edges([(1, 0)], x_nf=np.zeros((2, 2)), edge_x_ef=np.zeros((1, 1)))


def three(labels=(0, 1, 1), **options):
    return many_graphs([triangle(), pair(), triangle()], labels, **options)


def test_nodes_stand_side_by_side():
    graph = three(split_g={"train": [0, 1], "test": [2]}, name="shapes")
    assert graph.graphs is not None
    assert edge_pairs(graph) == [(0, 1), (1, 2), (2, 0), (4, 3), (5, 6), (6, 7), (7, 5)]
    assert graph.graphs.ids_n.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.labels_n.tolist() == [-1] * 8
    assert graph.splits["train"].tolist() == [True, True, False]
    assert graph.num_classes == 2
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1]
    assert repr(graph).startswith("Graph('shapes', 3 graphs, 8 nodes, 7 edges")
    assert statistics(graph)["graphs"] == 3


@pytest.mark.parametrize(
    "labels",
    [[0, 1, -1], [0.5, np.nan, 2], [[0, 1], [1, -1], [1, 1]], [[0.5, 1], [np.nan, 2], [1, 1]]],
    ids=["classes", "real", "yes or no", "several real"],
)
def test_files_and_copies_keep_them(labels, tmp_path):
    graph = three(np.asarray(labels), split_g={"train": [0], "val": [1] if labels[1] == 1 else []})
    save_npz(graph, tmp_path / "g.npz")
    for again in (load(tmp_path / "g.npz"), pickle.loads(pickle.dumps(graph))):
        assert again.fingerprint == graph.fingerprint
        assert again.graphs is not None
        np.testing.assert_array_equal(again.labels, labels)
        assert again.splits["train"].tolist() == [True, False, False]


def test_labels_may_be_names():
    graph = three(["ring", "line", None])
    assert graph.labels.tolist() == [1, 0, -1]
    assert graph.names.classes == ("line", "ring")


def test_names_of_features_are_those_of_the_graphs():
    parts = [dataclasses.replace(pair(), names=Names(features=("a", "b"))) for _ in range(2)]
    assert many_graphs(parts, [0, 1]).names.features == ("a", "b")
    other = dataclasses.replace(pair(), names=Names(features=("b", "a")))
    with pytest.raises(UserError, match="features in the same order"):
        many_graphs([*parts, other], [0, 1, 1])


def test_reordered_nodes_take_their_graph_along():
    graph = three().reordered(np.arange(8)[::-1])
    assert graph.graphs is not None
    assert graph.graphs.ids_n.tolist() == [2, 2, 2, 1, 1, 0, 0, 0]


def test_a_fold_of_a_file_is_for_test_and_the_next_for_validation(tmp_path):
    graph = many_graphs([pair()] * 6, [0, 1] * 3)
    save_npz(graph, tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as stored:
        arrays = dict(stored) | {"graph_folds": np.array([0, 1, 2, 0, -1, 2])}
    np.savez(tmp_path / "g.npz", **arrays)
    splits = load(tmp_path / "g.npz", split=2).splits
    assert {name: np.flatnonzero(mask).tolist() for name, mask in splits.items()} == {
        "train": [1, 4],
        "val": [0, 3],
        "test": [2, 5],
    }
    with pytest.raises(UserError, match="there is no split 3"):
        load(tmp_path / "g.npz", split=3)


@pytest.mark.parametrize(
    ("graphs", "labels", "message"),
    [
        ([], [], "at least one graph; found none"),
        ([pair(), (0, 1)], [0, 1], r"a list of gtjax\.Graph; found tuple"),
        (pair(), [0], r"a list of gtjax\.Graph; found Graph"),
        (None, [0], r"a list of gtjax\.Graph; found NoneType"),
        ([pair(), triangle(3)], [0, 1], "the same features; found 2, 3"),
        ([pair(), triangle(2, 0)], [0, 1], "the same edge features; found 0, 1"),
        ([pair(), pair()], [0], "labels_g"),
        ([pair(), pair()], None, "labels_g"),
        ([pair(), pair()], [0, 1, 1], "labels_g"),
        ([pair(), pair()], [0, -7], r"graphs\.labels_g: labels are in -1"),
        ([pair(), pair()], [0.5, np.inf], r"graphs\.labels_g: targets are finite"),
    ],
)
def test_what_does_not_fit_together_is_refused(graphs, labels, message):
    with pytest.raises(UserError, match=message):
        many_graphs(graphs, labels)


@pytest.mark.parametrize(
    ("ids", "labels", "split", "message"),
    [
        ([0, 0, 0, 1], [0, 1], {}, "no edge leads from one graph to another; found edge 1"),
        ([0, 0, 1, 1], [0, 1, 1], {}, "every graph has a node; found none in graph 2"),
        ([0, 0, 1, 2], [0, 1], {}, r"numbered 0\.\.1; found 2"),
        ([0, 0, 1], [0, 1], {}, "an integer"),
        ([0.0, 0, 1, 1], [0, 1], {}, "an integer"),
        ([0, 0, 1, 1], [0, -1], {"train": [1]}, "every graph of a mask has a label"),
        ([0, 0, 1, 1], [0, 1], {"train": [0], "val": [0]}, "no graph is in two masks"),
        ([0, 0, 1, 1], [0, 1], {"train": [5]}, r"numbers are in 0\.\.1; found 5"),
        ([0, 0, 1, 1], [0, 1], {"tset": [1]}, "named train, val or test"),
    ],
)
def test_the_rules_of_many_graphs(ids, labels, split, message):
    with pytest.raises(GraphFormatError, match=message):
        Graph(
            np.array([0, 3]),
            np.array([1, 2]),
            np.zeros((4, 1)),
            np.full(4, -1),
            graphs=ManyGraphs(np.array(ids), np.array(labels), split),
        )

"""The rules of a graph: each is broken once, and the error names field, rule and value."""

import pickle

import numpy as np
import pytest

from gtjax.core.errors import GraphFormatError, UserError, in_file
from gtjax.graph import Graph

MASK = np.array([True, False, False])


def fields(**changes):
    """A valid graph of three nodes and two edges, with some fields replaced."""
    valid = {
        "senders_e": np.array([0, 1]),
        "receivers_e": np.array([1, 2]),
        "x_nf": np.zeros((3, 2)),
        "labels_n": np.array([0, 1, -1]),
        "split_n": {"train": MASK},
    }
    return valid | changes


def test_the_unchanged_fields_are_valid():
    graph = Graph(**fields())
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (3, 2, 2, 2)


@pytest.mark.parametrize(
    ("changes", "field", "rule", "value"),
    [
        ({"senders_e": np.array([0, 3])}, "senders_e", "node numbers are in 0..2", "3"),
        ({"receivers_e": np.array([-1, 0])}, "receivers_e", "node numbers are in 0..2", "-1"),
        ({"senders_e": np.array([0, 2**40])}, "senders_e", "in 0..2", str(2**40)),
        (
            {"receivers_e": np.array([0, 2**64 - 1], np.uint64)},
            "receivers_e",
            "in 0..2",
            str(2**64 - 1),
        ),
        ({"senders_e": np.array([0.0, 1.0])}, "senders_e", "integers", "float64"),
        ({"senders_e": np.array([True, False])}, "senders_e", "integers", "bool"),
        ({"senders_e": np.array([[0, 1]])}, "senders_e", "a list", "[1, 2]"),
        ({"senders_e": np.array(["0", "1"])}, "senders_e", "an array of numbers", "<U1"),
        ({"senders_e": np.array([0, 1], object)}, "senders_e", "an array of numbers", "O"),
        ({"senders_e": [[0], [1, 2]]}, "senders_e", "rectangular", "list"),
        ({"receivers_e": np.array([0])}, "receivers_e", "one receiver for each of 2", "1"),
        ({"x_nf": np.zeros(3)}, "x_nf", "table [rows, features]", "[3]"),
        ({"x_nf": np.zeros((0, 2))}, "x_nf", "1 to 4294967295 nodes", "0"),
        ({"x_nf": np.zeros((3, 2), complex)}, "x_nf", "real numbers", "complex128"),
        ({"x_nf": np.zeros((3, 2), object)}, "x_nf", "an array of numbers", "O"),
        ({"x_nf": np.zeros(3, [("a", "f4")])}, "x_nf", "an array of numbers", "('a'"),
        ({"x_nf": np.array([[0, 1], [np.nan, 0], [0, 0]])}, "x_nf", "finite", "nan in row 1, col"),
        ({"x_nf": np.array([[0, 1], [2, 0], [0, -np.inf]])}, "x_nf", "finite", "-inf in row 2"),
        ({"x_nf": np.full((3, 2), 1e39)}, "x_nf", "finite", "inf in row 0, column 0"),
        ({"labels_n": np.array([0, 1])}, "labels_n", "[3] or [3, tasks]", "[2]"),
        ({"labels_n": np.zeros((3, 0), int)}, "labels_n", "[3] or [3, tasks]", "[3, 0]"),
        ({"labels_n": np.zeros((3, 1, 1), int)}, "labels_n", "[3] or", "[3, 1, 1]"),
        (
            {"labels_n": np.zeros(3, complex)},
            "labels_n",
            "integers, -1 where unlabelled",
            "complex",
        ),
        ({"labels_n": np.array([0, np.inf, 0])}, "labels_n", "finite, or NaN", "infinity"),
        ({"labels_n": np.array([0, -2, 0])}, "labels_n", "in -1..", "-2"),
        ({"labels_n": np.array([0, 2**31 - 1, 0])}, "labels_n", "-1..2147483646", "2147483647"),
        ({"labels_n": np.array([[0], [2], [1]])}, "labels_n", "labels are in -1..1", "2"),
        ({"split_n": [MASK]}, "split_n", "a mapping from train, val, test", "list"),
        ({"split_n": {"valid": MASK}}, "split_n", "named train, val or test", "valid"),
        ({"split_n": {"val": MASK[:2]}}, "split_n['val']", "boolean [3]", "bool shape [2]"),
        ({"split_n": {"val": MASK * 1}}, "split_n['val']", "boolean [3]", "int64 shape [3]"),
        ({"split_n": {"val": [[0], [1]]}}, "split_n['val']", "distinct numbers", "[2, 1]"),
        ({"split_n": {"val": [0, 3]}}, "split_n['val']", "numbers are in 0..2", "3"),
        ({"split_n": {"val": [0.5]}}, "split_n['val']", "distinct numbers", "float64"),
        (
            {"split_n": {"train": MASK, "test": np.array([True, True, False])}},
            "split_n['test']",
            "no node is in two masks",
            "node 0, also in 'train'",
        ),
        ({"split_n": {"train": ~MASK}}, "split_n['train']", "has a label", "node 2"),
        ({"edge_x_ef": np.zeros((3, 1))}, "edge_x_ef", "one row for each of 2 edges", "3"),
        ({"edge_x_ef": np.zeros(2)}, "edge_x_ef", "table", "[2]"),
        ({"edge_x_ef": np.full((2, 1), np.nan)}, "edge_x_ef", "finite", "nan in row 0"),
        ({"name": 7}, "name", "text", "int"),
    ],
)
def test_a_broken_rule_is_named(changes, field, rule, value):
    with pytest.raises(GraphFormatError) as caught:
        Graph(**fields(**changes))
    error = caught.value
    assert isinstance(error, UserError)
    assert error.field == field
    assert rule in error.rule
    assert value in error.value
    assert str(error) == f"{error.field}: {error.rule}; found {error.value}"


def test_masks_may_be_lists_of_numbers():
    graph = Graph(**fields(split_n={"train": [1], "val": np.array([0], np.uint8), "test": []}))
    found = {name: np.flatnonzero(mask).tolist() for name, mask in graph.split_n.items()}
    assert found == {"train": [1], "val": [0], "test": []}
    assert all(mask.dtype == bool for mask in graph.split_n.values())


@pytest.mark.parametrize("labels", [[0.5, np.nan, 2], [[0.5, 1], [np.nan, 2], [np.nan, np.nan]]])
def test_real_labels_are_targets(labels):
    graph = Graph(**fields(labels_n=np.asarray(labels), split_n={"train": [0]}))
    assert graph.is_real
    assert not graph.is_multilabel
    assert graph.labels_n.dtype == np.float32
    assert graph.num_classes == graph.labels_n.reshape(3, -1).shape[1]
    assert graph.labelled.tolist() == [True, np.ndim(labels) == 2, np.ndim(labels) == 1]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(graph)).labels_n, labels)
    unlabelled = int(np.flatnonzero(~graph.labelled)[0])
    with pytest.raises(GraphFormatError, match="every node of a mask has a label"):
        graph.with_splits(train=[unlabelled])


def test_a_value_deep_in_the_features_is_found(monkeypatch):
    monkeypatch.setattr("gtjax.graph.validation._BLOCK", 4)
    x_nf = np.zeros((9, 2))
    x_nf[7, 1] = np.inf
    with pytest.raises(GraphFormatError, match="inf in row 7, column 1"):
        Graph(np.zeros(0, int), np.zeros(0, int), x_nf, np.full(9, -1))


def test_a_graph_without_edges_features_and_labels_is_valid():
    graph = Graph([], [], np.zeros((2, 0)), np.array([-1, -1]))
    assert (graph.num_edges, graph.num_features, graph.num_classes) == (0, 0, 0)
    assert graph.senders_e.dtype == np.int32
    assert graph.is_symmetric
    assert graph.symmetrised() is graph.without_duplicate_edges() is graph.without_self_loops()
    assert graph.by_receiver.offsets.tolist() == [0, 0, 0]
    assert len(graph.fingerprint) == 32


def test_types_become_canonical():
    graph = Graph(
        np.array([0, 1], ">i8"),
        np.array([1, 2], np.uint8),
        np.ones((3, 2), ">f4"),
        np.array([False, True, True]),
        {"train": [True, False, False]},
        np.ones((2, 1), np.int8),
    )
    assert graph.senders_e.dtype == graph.receivers_e.dtype == graph.labels_n.dtype == np.int32
    assert graph.x_nf.dtype == np.float32
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.dtype == np.float32
    assert Graph(**fields(x_nf=np.ones((3, 2), np.float16))).x_nf.dtype == np.float16


def test_multilabel_graphs_count_tasks():
    labels = np.array([[0, 1], [-1, 1], [-1, -1]])
    graph = Graph(**fields(labels_n=labels, split_n={"train": [True, True, False]}))
    assert graph.is_multilabel
    assert graph.num_classes == 2
    with pytest.raises(GraphFormatError, match="every node of a mask has a label; found node 2"):
        Graph(**fields(labels_n=labels, split_n={"train": [True, True, True]}))


def test_arrays_of_the_right_type_are_shared_and_read_only():
    senders = np.array([0, 1], np.int32)
    x_nf = np.zeros((3, 2), np.float32)
    graph = Graph(**fields(senders_e=senders, x_nf=x_nf, edge_x_ef=np.zeros((2, 1))))
    assert np.shares_memory(graph.senders_e, senders)
    assert np.shares_memory(graph.x_nf, x_nf)
    assert senders.flags.writeable  # the caller's own array stays as it was
    held = (graph.senders_e, graph.receivers_e, graph.x_nf, graph.labels_n, graph.edge_x_ef)
    for array in (*held, *graph.split_n.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        graph.split_n["val"] = MASK
    with pytest.raises(AttributeError):
        graph.senders_e = senders


def test_errors_name_the_file_once_and_stay_short():
    named = pytest.raises(GraphFormatError, match=r"^a\.npz: x_nf: ")
    with named as caught, in_file("b.npz"), in_file("a.npz"):
        Graph(**fields(x_nf=np.zeros(3)))
    assert caught.value.file == "a.npz"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    long = GraphFormatError("field", "rule", "line\n" + "x" * 1000)
    assert len(long.value) == 120
    assert "\n" not in str(long)

"""Classes and features of another graph, numbered as those of the training."""

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import Graph, Names, from_edges, many_graphs
from gtjax.runs.same_names import with_classes, with_features

TRAINED = ("a", "b", "c")


def labelled(labels, classes, **splits) -> Graph:
    graph = from_edges([], labels_n=np.asarray(labels))
    fields = (graph.senders_e, graph.receivers_e, graph.x_nf, graph.labels_n, splits)
    return Graph(*fields, names=Names(classes=classes))


def test_without_names_or_with_the_same_nothing_changes():
    for classes in ((), TRAINED):
        graph = labelled([0, 1, 2], classes)
        assert with_classes(graph, TRAINED) is graph
    graph = labelled([0, 1, 2], ("x", "y", "z"))
    assert with_classes(graph, ()) is graph


def test_numbers_follow_the_names():
    graph = with_classes(labelled([0, 1, -1, 0], ("c", "a"), train=[0, 1]), TRAINED)
    assert graph.labels_n.tolist() == [2, 0, -1, 2]
    assert graph.names.classes == TRAINED
    assert graph.split_n["train"].tolist() == [True, True, False, False]


def test_what_was_never_seen_is_in_no_mask(capsys):
    graph = with_classes(labelled([0, 1, 2], ("c", "new"), train=[0, 1, 2]), TRAINED)
    assert graph.labels_n.tolist() == [2, -1, -1]  # the last had a number and no name
    assert graph.split_n["train"].tolist() == [True, False, False]
    assert "new" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([[0, 1], [1, -1]], [[1, -1, 0], [-1, -1, 1]]),
        ([[0.5, 1], [2, np.nan]], [[1, np.nan, 0.5], [np.nan, np.nan, 2]]),
    ],
    ids=["yes or no", "real"],
)
def test_columns_follow_the_names(labels, expected):
    graph = with_classes(labelled(labels, ("c", "a")), TRAINED)
    np.testing.assert_array_equal(graph.labels_n, np.asarray(expected, np.float32))


def test_labels_of_graphs_too():
    graph = many_graphs([from_edges([(0, 1)])] * 2, ["c", "a"], split_g={"train": [0]})
    again = with_classes(graph, TRAINED)
    assert graph.labels.tolist() == [1, 0]
    assert again.labels.tolist() == [2, 0]
    assert again.splits["train"].tolist() == [True, False]


def featured(*features) -> Graph:
    graph = from_edges([], x_nf=np.arange(2 * len(features)).reshape(2, -1))
    fields = (graph.senders_e, graph.receivers_e, graph.x_nf, graph.labels_n)
    return Graph(*fields, names=Names(features=features))


def test_features_follow_their_names():
    graph = with_features(featured("c", "a", "b"), TRAINED)
    assert graph.x_nf.tolist() == [[1, 2, 0], [4, 5, 3]]
    assert graph.names.features == TRAINED
    same = featured(*TRAINED)
    assert with_features(same, TRAINED) is same
    assert with_features(same, ()) is same


def test_other_features_are_refused():
    with pytest.raises(UserError, match=r"other features than graph has: c missing\. Name the col"):
        with_features(featured("a", "b", "d"), TRAINED)

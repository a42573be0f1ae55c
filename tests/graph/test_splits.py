"""Random splits: their sizes, who is left out, the same draw again, and what is refused."""

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.datasets import load, save_npz
from gtjax.graph import from_edges, many_graphs
from gtjax.graph.splits import RandomSplit, Shares

NAMES = ("train", "val", "test")


def labelled(labels):
    return from_edges([], num_nodes=len(labels), labels_n=np.asarray(labels), name="toy")


def sizes(graph):
    return [int(graph.splits[name].sum()) for name in NAMES if name in graph.splits]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.6, 0.2, 0.2), [60, 20, 20]), ((0.1, 0.1, 0.1), [10, 10, 10]), ((0.5, 0.5, 0), [50, 50])],
)
def test_shares_of_the_labelled(shares, expected):
    labels = np.r_[np.arange(100) % 7, [-1] * 13]
    graph = labelled(labels).with_random_splits(*shares)
    assert sizes(graph) == expected
    assert not any(mask[100:].any() for mask in graph.splits.values())


def test_a_stratified_split_has_the_shares_of_each_class():
    labels = np.repeat([0, 1, 2], [50, 100, 10])
    graph = labelled(labels).with_random_splits(stratified=True)
    for name, share in zip(NAMES, (0.6, 0.2, 0.2), strict=True):
        counts = np.bincount(labels[graph.split_n[name]])
        assert counts.tolist() == [50 * share, 100 * share, 10 * share]


def test_a_seed_gives_the_same_split_again_and_another_another():
    graph = labelled(np.arange(100) % 3)
    first, again, other = (graph.with_random_splits(seed=seed) for seed in (4, 4, 5))
    assert first.fingerprint == again.fingerprint != other.fingerprint


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize(
    "labels",
    [
        np.r_[np.linspace(0, 1, 50), [np.nan] * 3],
        np.r_[np.ones((50, 2), int), np.full((3, 2), -1)],
        np.r_[np.full((50, 2), 0.5), np.full((3, 2), np.nan)],
    ],
    ids=["real", "yes or no", "several real"],
)
def test_real_and_several_labels_count_as_one_class(labels, stratified):
    graph = labelled(labels).with_random_splits(stratified=stratified)
    assert sizes(graph) == [30, 10, 10]
    assert not graph.split_n["train"][50:].any()


def test_of_many_graphs_the_graphs_are_split():
    graph = many_graphs([labelled([-1, -1])] * 10, np.arange(10) % 2).with_random_splits()
    assert graph.graphs is not None
    assert sizes(graph) == [6, 2, 2]
    assert not graph.split_n
    assert len(graph.splits["train"]) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": 60}, r"the share of train is in 0\.\.1, such as 0\.6; found 60"),
        ({"val": float("nan")}, "the share of val"),
        ({"test": "a"}, "the share of test"),
        ({"train": 0.9}, "add up to at most 1, .* found train=0.9, val=0.2, test=0.2"),
        ({"train": 0}, "with some for train"),
        ({"seed": -1}, "the seed of a split is an integer, 0 or more; found -1"),
        ({"seed": 0.5}, "the seed of a split"),
    ],
)
def test_what_is_no_split_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        labelled([0, 1]).with_random_splits(**options)


def test_without_labels_there_is_nothing_to_split():
    with pytest.raises(UserError, match="toy has no labels"):
        labelled([-1, -1]).with_random_splits()


def test_words_for_a_split():
    assert RandomSplit.parse("random:60/20/20") == RandomSplit(Shares(), False, None)
    assert RandomSplit.parse("stratified:0.5/0.25/0.25:7") == RandomSplit(
        Shares(0.5, 0.25, 0.25), True, 7
    )


@pytest.mark.parametrize("text", ["random", "random:60/40", "half:60/20/20", "random:6/2/2:-1", ""])
def test_other_words_are_refused_with_the_right_ones(text):
    with pytest.raises(UserError, match=r"random:60/20/20, .* found '"):
        RandomSplit.parse(text)


def test_loading_draws_over_what_is_stored(tmp_path):
    graph = labelled(np.arange(50) % 2).with_splits(train=[0], val=[1], test=[2])
    save_npz(graph, tmp_path / "g.npz")
    drawn = load(tmp_path / "g.npz", split="random:60/20/20")
    assert sizes(drawn) == [30, 10, 10]
    for options in ({"split": "random:60/20/20:3"}, {"split": "random:60/20/20", "seed": 3}):
        again = load(tmp_path / "g.npz", **options)
        assert again.fingerprint == graph.with_random_splits(seed=3).fingerprint
    assert drawn.fingerprint != again.fingerprint
    save_npz(labelled([-1, -1]), tmp_path / "bare.npz")
    assert not load(tmp_path / "bare.npz", split="random:60/20/20").splits

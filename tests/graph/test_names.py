"""Names of nodes, classes and features: kept through every change, files and copies."""

import pickle

import numpy as np
import pytest

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import load, save_npz
from gtjax.graph import Graph, Names

NAMES = Names(np.array(["ä", "b", "a long name"]), ("no", "yes"), ("age", "größe"))


def named(names=NAMES, **fields):
    valid = {
        "senders_e": np.array([0, 1]),
        "receivers_e": np.array([1, 2]),
        "x_nf": np.eye(3, 2),
        "labels_n": np.array([0, 1, -1]),
    }
    return Graph(**(valid | fields), names=names)


def same(first: Names, second: Names) -> bool:
    nodes = [None if names.nodes is None else names.nodes.tolist() for names in (first, second)]
    return nodes[0] == nodes[1] and (first.classes, first.features) == (
        second.classes,
        second.features,
    )


def test_a_number_stands_for_what_has_no_name():
    assert [NAMES.of_class(i) for i in range(3)] == ["no", "yes", "2"]
    assert NAMES.of_node(2) == "a long name"
    assert Names().of_node(2) == "2"


def test_classes_that_no_node_has_count():
    names = Names(classes=("a", "b", "c", "d"))
    assert named(names).num_classes == 4
    assert named(Names()).num_classes == 2


@pytest.mark.parametrize("names", [NAMES, Names(), Names(classes=("x",)), Names(nodes=NAMES.nodes)])
def test_files_and_copies_keep_them(names, tmp_path):
    graph = named(names)
    save_npz(graph, tmp_path / "g.npz")
    for again in (load(tmp_path / "g.npz"), pickle.loads(pickle.dumps(graph))):
        assert same(again.names, names)
        assert again.fingerprint == graph.fingerprint


def test_they_follow_the_nodes():
    graph = named().reordered(np.array([2, 0, 1]))
    assert graph.names.nodes is not None
    assert graph.names.nodes.tolist() == ["a long name", "ä", "b"]
    for again in (graph.symmetrised(), graph.with_self_loops(), graph.with_splits(train=[1])):
        assert same(again.names, graph.names)


def test_they_are_not_part_of_the_fingerprint():
    assert named().fingerprint == named(Names()).fingerprint


@pytest.mark.parametrize(
    ("names", "field", "rule"),
    [
        ({"nodes": ["a", "b", "c"]}, "names", "gtjax.graph.Names"),
        (Names(nodes=np.array(["a", "b"])), "names.nodes", r"text \[3\]"),
        (Names(nodes=np.arange(3)), "names.nodes", r"text \[3\]"),
        (Names(features=("a",)), "names.features", "one name for each of 2 features"),
        (Names(classes=("a", "a")), "names.classes", "names of classes are distinct"),
        (Names(classes="ab"), "names.classes", "a list of text"),
        (Names(classes=3), "names.classes", "a list of text"),
        (Names(features=(1, 2)), "names.features", "a list of text"),
    ],
)
def test_names_that_do_not_fit_are_refused(names, field, rule):
    with pytest.raises(GraphFormatError, match=rule) as caught:
        named(names)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"nodes": 3, "classes": [], "features": []}',
        b'{"nodes": null, "classes": [1], "features": []}',
        b'{"nodes": null, "classes": null, "features": []}',
        b'{"nodes": null, "classes": "ab", "features": []}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_broken_names_in_a_file_are_named(text, tmp_path):
    save_npz(named(), tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "g.npz", **arrays | {"names": np.frombuffer(text, np.uint8)})
    with pytest.raises(GraphFormatError, match=r"g\.npz: names"):
        load(tmp_path / "g.npz")

"""DataFrames: the same graph as from files, columns by name, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sample_files import write_edge_list

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import from_pandas, load

EDGES = {"src": ["z", "b"], "dst": ["b", "a"], "w": [0.5, 1.5]}
NODES = {"id": ["a", "b", "z"], "age": [1, 2, 3], "size": [0.5, 1, 2], "kind": ["u", "v", None]}


@pytest.fixture
def frame():
    return pytest.importorskip("pandas").DataFrame


def pairs(graph):
    return list(zip(graph.senders_e.tolist(), graph.receivers_e.tolist(), strict=True))


def test_frames_give_the_same_graph_as_the_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    folder = write_edge_list(tmp_path / "toy")
    edges, nodes = (pandas.read_csv(folder / f"{name}.csv") for name in ("edges", "nodes"))
    graph, stored = from_pandas(edges, nodes), load(folder)
    assert graph.fingerprint == stored.fingerprint
    assert graph.names.nodes is not None
    assert stored.names.nodes is not None
    assert graph.names.nodes.tolist() == stored.names.nodes.tolist()
    assert graph.names.classes == stored.names.classes == ("blue", "red")


def test_edges_alone(frame):
    graph = from_pandas(frame(EDGES), name="toy")
    assert pairs(graph) == [(0, 1), (1, 2)]
    assert graph.names.nodes is not None
    assert graph.names.nodes.tolist() == ["z", "b", "a"]
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.tolist() == [[0.5], [1.5]]
    assert graph.name == "toy"


def test_columns_may_be_named(frame):
    nodes = frame(NODES).rename(columns={"id": "who"})
    edges = frame({"first": ["?", "!"], **EDGES})
    options = {"source": "dst", "target": "src", "id": "who", "label": "kind"}
    graph = from_pandas(edges, nodes, **options, features=["size"], edge_features=[])
    assert pairs(graph) == [(1, 2), (0, 1)]
    assert graph.names.features == ("size",)
    assert graph.labels_n.tolist() == [0, 1, -1]
    assert graph.names.classes == ("u", "v")
    assert graph.edge_x_ef is None


def test_ids_may_be_the_index_and_integers(frame, capsys):
    graph = from_pandas(frame(EDGES), frame(NODES).set_index("id"))
    assert graph.names.features == ("age", "size")
    assert graph.names.nodes is not None
    assert graph.names.nodes.tolist() == ["a", "b", "z"]
    assert "nodes: left out, since they hold no numbers: kind" in capsys.readouterr().err
    numbers = from_pandas(frame({"a": [70, 5], "b": [5, 5]}), frame({"x": [1, 2]}, index=[5, 70]))
    assert pairs(numbers) == [(1, 0), (0, 0)]
    plain = from_pandas(frame({"a": [0, 1], "b": [1, 1]}), frame({"x": [1, 2]}))
    assert plain.names.nodes is None


def test_categories_targets_splits_and_columns_called_by_numbers(frame):
    nodes = frame(
        {"id": [3, 4, 5], 0: [1, 2, 3], "y": [0.5, None, 2], "split": ["train", "", "val"]}
    )
    nodes["id"] = nodes["id"].astype("category")
    graph = from_pandas(frame({"src": [3], "dst": [5]}), nodes)
    np.testing.assert_array_equal(graph.labels_n, np.float32([0.5, np.nan, 2]))
    assert graph.split_n["train"].tolist() == [True, False, False]
    assert graph.names.features == ("0",)


def test_a_split_is_drawn_by_the_seed(frame):
    nodes = frame({"y": np.arange(100) % 2})
    edges = frame({"src": [0], "dst": [1]})
    first, again, other = (from_pandas(edges, nodes, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "message"),
    [
        (EDGES, {"id": ["a"]}, {}, "edges: source: every edge ends at a node .* found z"),
        (EDGES, NODES, {"label": "nope"}, "nodes: columns: a column 'nope'; found id, age"),
        (EDGES, NODES, {"id": "nope"}, "nodes: columns: a column 'nope'"),
        (EDGES, NODES, {"split": "kind"}, "nodes: kind: train, val, test or empty; found u"),
        (EDGES, NODES, {"features": ["kind"]}, "nodes: kind: a column of features holds numbers"),
        (EDGES, None, {"source": "nope"}, "edges: columns: a column 'nope'; found src, dst, w"),
        (EDGES, None, {"edge_features": ["x"]}, "edges: columns: a column 'x'"),
        ({"src": [1]}, None, {}, "edges: columns: at least two columns"),
        ({"src": [1.5], "dst": [1]}, None, {}, "edges: source: ids are integers or strings"),
        ({"src": ["a", None], "dst": ["a", "b"]}, None, {}, "edges: source: .* 1 empty"),
        ({"src": [1, "a"], "dst": [2, 3]}, None, {}, "edges: columns: columns of numbers or text"),
        ({"src": [], "dst": []}, None, {}, "edges: rows: .* has edges; found 0"),
        (EDGES, {**NODES, "age": [1, None, 2]}, {}, "nodes: x_nf: features are finite"),
        (EDGES, {**NODES, "id": ["a", "b", "b"]}, {}, "nodes: id: 3 distinct ids; found 2"),
    ],
)
def test_what_is_wrong_is_named(frame, edges, nodes, options, message):
    with pytest.raises(GraphFormatError, match=message):
        from_pandas(frame(edges), None if nodes is None else frame(nodes), **options)


def test_what_is_no_frame_is_refused(frame):
    for given in (None, EDGES, np.zeros((2, 2)), "edges.csv"):
        with pytest.raises(UserError, match=r"takes edges as a pandas\.DataFrame; found"):
            from_pandas(given)
    with pytest.raises(UserError, match=r"takes nodes as a pandas\.DataFrame; found list"):
        from_pandas(frame(EDGES), [1])


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r'pip install "gtjax\[pandas\]"'):
        from_pandas(object())

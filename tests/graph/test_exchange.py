"""Exchange with other libraries: there and back, and what cannot be taken in is named."""

import subprocess
import sys

import jax.numpy as jnp
import jraph
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.graph import (
    Graph,
    from_edges,
    from_jraph,
    from_networkx,
    from_scipy,
    to_jraph,
    to_networkx,
    to_scipy,
)
from tests.graph.fake_tensor import FakeTensor
from tests.graph.graphs import edge_pairs, graphs

LABELS = np.array([0, -1, 1])
SPLITS = {"train": np.array([True, False, False]), "test": np.array([False, False, True])}


def full() -> Graph:
    """Three nodes, a repeated edge and a loop, with every field set."""
    senders, receivers = np.array([2, 0, 0, 1]), np.array([0, 1, 1, 1])
    edge_x = np.arange(8, dtype=np.float32).reshape(4, 2)
    return Graph(senders, receivers, np.eye(3, 2), LABELS, SPLITS, edge_x, "full")


def test_edges_there_and_back():
    graph = full()
    pairs = np.stack([graph.senders_e, graph.receivers_e], axis=1)
    again = from_edges(
        pairs,
        x_nf=graph.x_nf,
        labels_n=LABELS,
        split_n=SPLITS,
        edge_x_ef=graph.edge_x_ef,
        name="again",
    )
    assert again.fingerprint == graph.fingerprint
    assert again.name == "again"
    assert again.senders_e.flags.c_contiguous


def test_edges_may_be_any_iterable_of_pairs():
    graph = from_edges(((n, n + 1) for n in range(3)), num_nodes=6)
    assert edge_pairs(graph) == [(0, 1), (1, 2), (2, 3)]
    assert graph.num_nodes == 6
    assert graph.x_nf.shape == (6, 0)
    assert graph.labels_n.tolist() == [-1] * 6
    assert from_edges([(0, 4)]).num_nodes == 5
    assert from_edges({(0, 1)}, labels_n=LABELS).num_nodes == 3
    assert from_edges([], num_nodes=2).num_edges == 0


@pytest.mark.parametrize(
    ("edges", "arguments", "message"),
    [
        ([(0, 1, 2)], {}, r"edges are a table \[edges, 2\] or .* found shape \(1, 3\)"),
        ([(0, 1), (1,)], {}, "edges: edges are pairs"),
        ([(0.5, 1)], {}, "edges: node numbers are integers; found dtype"),
        ([("a", "b")], {}, "edges: node numbers are integers"),
        ([(-1, 0)], {}, "senders_e: node numbers are in 0..0; found -1"),
        ([(0, 5)], {"num_nodes": 3}, "receivers_e: node numbers are in 0..2; found 5"),
        ([], {}, "num_nodes: a graph has 1 to 4294967295 nodes; found 0"),
        ([], {"num_nodes": -1}, "num_nodes: a graph has 1 to 4294967295 nodes; found -1"),
        ([(0, 2**40)], {}, "num_nodes: a graph has 1 to 4294967295 nodes; found 1099511627777"),
        ([(0, 1)], {"num_nodes": 2, "x_nf": np.eye(3)}, "x_nf: one row for each of 2 nodes"),
        ([(0, 1)], {"num_nodes": "2"}, "num_nodes: a graph has 1 to 4294967295 nodes; found 2"),
        ([(0, 1)], {"x_nf": 3}, "x_nf: one row a node; found int"),
        ([(0, 1)], {"labels_n": ["a", 1.5]}, "labels_n: labels are all numbers or all text"),
        ([(0, 1)], {"labels_n": [["a"], ["b"]]}, "labels_n: an array of numbers"),
        (None, {}, "edges: edges are an array .* found NoneType"),
        (7, {}, "edges: edges are an array .* found int"),
    ],
)
def test_bad_edges_are_named(edges, arguments, message):
    with pytest.raises(GraphFormatError, match=message):
        from_edges(edges, **arguments)


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray, FakeTensor])
def test_arrays_of_any_library_and_either_way_up(array):
    index = np.array([[0, 1, 2], [1, 2, 0]])
    graph = from_edges(
        array(index), x_nf=array(np.eye(3)), labels_n=array(LABELS), split_n={"train": array([0])}
    )
    assert edge_pairs(graph) == edge_pairs(from_edges(index.T)) == [(0, 1), (1, 2), (2, 0)]
    assert graph.labels_n.tolist() == LABELS.tolist()
    assert graph.split_n["train"].tolist() == [True, False, False]
    assert all(type(field) is np.ndarray for field in (graph.senders_e, graph.x_nf))
    assert edge_pairs(from_edges(array([[0, 1], [2, 0]]))) == [(0, 1), (2, 0)]  # a row an edge


def test_labels_may_be_names():
    graph = from_edges([], labels_n=["red", "blue", None, "red", " ", float("nan")])
    assert graph.labels_n.tolist() == [1, 0, -1, 1, -1, -1]
    assert graph.names.classes == ("blue", "red")
    assert from_edges([], labels_n=np.array(["a", "b"])).labels_n.tolist() == [0, 1]


def test_labels_may_be_real():
    assert from_edges([], labels_n=[0.5, np.nan, 2]).is_real


@given(graphs())
def test_scipy_there_and_back(graph):
    matrix = to_scipy(graph)
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(dense, (graph.senders_e, graph.receivers_e), 1)
    np.testing.assert_array_equal(matrix.toarray(), dense)
    again = from_scipy(matrix, x_nf=graph.x_nf)
    assert sorted(edge_pairs(again)) == sorted(set(edge_pairs(graph)))


@pytest.mark.parametrize("kind", [sp.coo_array, sp.csr_array, sp.csc_array, sp.csr_matrix])
def test_scipy_weights_become_the_edge_feature(kind):
    dense = np.array([[0, 2.5, 0], [0, 0, -1], [4, 0, 0]])
    graph = from_scipy(kind(dense), labels_n=LABELS, split_n=SPLITS, weights=True)
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.shape == (3, 1)
    np.testing.assert_array_equal(to_scipy(graph, weights=True).toarray(), dense)
    assert from_scipy(kind(dense)).edge_x_ef is None


def test_scipy_stored_zeros_are_edges():
    stored = sp.csr_array((np.array([0.0]), np.array([1]), np.array([0, 1, 1])), shape=(2, 2))
    assert edge_pairs(from_scipy(stored)) == [(0, 1)]


def test_scipy_mistakes_are_named():
    with pytest.raises(GraphFormatError, match=r"adjacency matrix is square; found shape \(2, 3\)"):
        from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(UserError, match=r"this graph has 2 edge features\. Use weights=False"):
        to_scipy(full(), weights=True)


def test_networkx_there_and_back():
    graph = full()
    exported = to_networkx(graph)
    assert exported.nodes[0] == {"x": [1.0, 0.0], "label": 0, "split": "train"}
    assert "label" not in exported.nodes[1]
    again = from_networkx(exported, features="x", labels="label", edge_features="x", split_n=SPLITS)
    # networkx groups edges by sender, so compare as sets of (sender, receiver, features).
    assert _edge_rows(again) == _edge_rows(graph)
    np.testing.assert_array_equal(again.x_nf, graph.x_nf)
    np.testing.assert_array_equal(again.labels_n, graph.labels_n)


def _edge_rows(graph: Graph) -> list[tuple]:
    assert graph.edge_x_ef is not None
    rows = zip(edge_pairs(graph), graph.edge_x_ef.tolist(), strict=True)
    return sorted((pair, tuple(x)) for pair, x in rows)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (nx.DiGraph, [(0, 1), (1, 2), (2, 2)]),
        (nx.MultiDiGraph, [(0, 1), (0, 1), (1, 2), (2, 2)]),
        (nx.Graph, [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]),
        (nx.MultiGraph, [(0, 1), (0, 1), (1, 0), (1, 0), (1, 2), (2, 1), (2, 2)]),
    ],
)
def test_networkx_nodes_are_numbered_in_order(kind, expected):
    source = kind()
    source.add_nodes_from([("c", {"y": 1}), ("a", {}), ("b", {"y": 0})])
    edges = [("c", "a"), ("c", "a"), ("a", "b"), ("b", "b")]
    source.add_edges_from((start, end, {"w": 2.0}) for start, end in edges)
    graph = from_networkx(source, labels="y", edge_features="w")
    assert sorted(edge_pairs(graph)) == expected
    assert graph.is_symmetric == (not source.is_directed())
    assert graph.labels_n.tolist() == [1, -1, 0]
    assert graph.names.nodes is not None
    assert graph.names.nodes.tolist() == ["c", "a", "b"]
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.tolist() == [[2.0]] * len(expected)


def test_networkx_reverse_edges_keep_their_features():
    source = nx.Graph()
    source.add_edge(0, 1, w=[1.0, 2.0])
    source.add_edge(1, 2, w=[3.0, 4.0])
    graph = from_networkx(source, edge_features="w")
    assert graph.edge_x_ef is not None
    found = dict(zip(edge_pairs(graph), graph.edge_x_ef.tolist(), strict=True))
    assert found[0, 1] == found[1, 0] == [1.0, 2.0]
    assert found[1, 2] == found[2, 1] == [3.0, 4.0]


def test_networkx_labels_may_be_names_or_real():
    source = nx.path_graph(3)
    source.nodes[0]["kind"] = "x"
    source.nodes[2].update(kind="a", age=0.5)
    graph = from_networkx(source, labels="kind")
    assert graph.labels_n.tolist() == [1, -1, 0]
    assert graph.names.classes == ("a", "x")
    assert graph.names.nodes is None  # they are called 0, 1 and 2
    ages = from_networkx(source, labels="age")
    np.testing.assert_array_equal(ages.labels_n, np.float32([np.nan, np.nan, 0.5]))
    assert [data.get("label") for _, data in to_networkx(ages).nodes(data=True)] == [
        None,
        None,
        0.5,
    ]
    assert from_networkx(source, labels="none").labels_n.tolist() == [-1, -1, -1]


def test_networkx_without_edges():
    source = nx.empty_graph(3)
    assert from_networkx(source, edge_features="w").num_edges == 0


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ([{"x": 1.0}, {}], "x: every node has the attribute; found none on node 1"),
        ([{"x": [1.0]}, {"x": [1.0, 2.0]}], "x: rows of equal length"),
        ([{"x": "a"}, {"x": "b"}], "an array of numbers"),
        ([{"x": None}, {"x": 1}], "x: an array of numbers"),
    ],
)
def test_networkx_bad_attributes_are_named(attributes, message):
    source = nx.Graph()
    source.add_nodes_from(enumerate(attributes))
    with pytest.raises(GraphFormatError, match=message):
        from_networkx(source, features="x")


def test_networkx_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(UserError, match=r'pip install "gtjax\[networkx\]"'):
        to_networkx(full())


def test_jraph_there_and_back():
    graph = full()
    exported = to_jraph(graph)
    assert isinstance(exported, jraph.GraphsTuple)
    assert exported.n_node.tolist() == [3]
    assert exported.n_edge.tolist() == [4]
    again = from_jraph(exported, labels_n=LABELS, split_n=SPLITS)
    assert again.fingerprint == graph.fingerprint


def test_jraph_functions_accept_what_we_export():
    pair = jraph.batch_np([to_jraph(full()), to_jraph(full())])
    for part in jraph.unbatch_np(pair):
        again = from_jraph(part, labels_n=LABELS, split_n=SPLITS)
        assert again.fingerprint == full().fingerprint


def test_jraph_without_features():
    bare = to_jraph(full())._replace(nodes=None, edges=None)
    graph = from_jraph(bare)
    assert graph.x_nf.shape == (3, 0)
    assert graph.edge_x_ef is None
    assert graph.labels_n.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_node": np.array([1, 2])}, "n_node: a tuple of one graph .* found 2 graphs"),
        ({"n_node": np.array([4])}, "nodes: n_node says 4; found 3"),
        ({"n_edge": np.array([9])}, "senders: n_edge says 9; found 4"),
        ({"nodes": {"h": np.eye(3)}}, "nodes: an array of numbers; found dict"),
        ({"receivers": np.array([0, 1, 1, 7])}, "receivers_e: node numbers are in 0..2; found 7"),
    ],
)
def test_jraph_mistakes_are_named(changes, message):
    with pytest.raises(GraphFormatError, match=message):
        from_jraph(to_jraph(full())._replace(**changes))


def test_importing_the_package_is_light():
    program = "import sys, gtjax.graph; print({'jax', 'jraph', 'networkx'} & set(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "set()"

"""DGL, by stand-ins: what a `DGLGraph` holds comes in."""

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.graph import from_dgl
from tests.graph.fake_tensor import FakeTensor
from tests.graph.graphs import edge_pairs


class DGLGraph:
    """Frames can be asked whether they have a column, but have no `get`."""

    is_homogeneous = True

    def __init__(self, ndata=(), edata=()):
        self.ndata = {key: FakeTensor(value) for key, value in dict(ndata).items()}
        self.edata = {key: FakeTensor(value) for key, value in dict(edata).items()}

    def edges(self):
        return FakeTensor([0, 1]), FakeTensor([1, 2])

    def num_nodes(self):
        return 3


def full():
    ndata = {"feat": np.eye(3, 2), "label": [1, 0, 1], "train_mask": [True, False, False]}
    return DGLGraph(ndata, {"feat": [0.5, 1.5]})


def test_all_of_it_comes_in():
    graph = from_dgl(full(), name="toy")
    assert edge_pairs(graph) == [(0, 1), (1, 2)]
    assert graph.x_nf.tolist() == np.eye(3, 2).tolist()
    assert graph.labels_n.tolist() == [1, 0, 1]
    assert graph.split_n["train"].tolist() == [True, False, False]
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.tolist() == [[0.5], [1.5]]


def test_columns_may_have_other_names_or_be_missing():
    source = DGLGraph({"h": [1.0, 2, 3], "y": [0.5, np.nan, 1]}, {"w": [[1.0, 2], [3, 4]]})
    graph = from_dgl(source, features="h", labels="y", edge_features="w")
    assert graph.x_nf.tolist() == [[1], [2], [3]]
    assert graph.is_real
    assert graph.num_edge_features == 2
    bare = from_dgl(source)
    assert (bare.num_features, bare.num_edge_features, bare.num_classes) == (0, 0, 0)


def test_pairs_are_many_graphs_and_a_set_of_one_is_one():
    graph = from_dgl([(full(), FakeTensor([1])), (full(), FakeTensor([0]))])
    assert graph.labels.tolist() == [1, 0]
    assert graph.num_nodes == 6
    assert from_dgl([(full(), 3), (full(), 4)]).labels.tolist() == [3, 4]
    assert from_dgl([full()]).graphs is None


def test_what_is_no_graph_is_refused_with_a_way_out():
    for given in (None, "g", 3, {}, [full(), full()], [(full(), 1, 2)], []):
        with pytest.raises(UserError, match=r"takes a DGLGraph|at least one graph"):
            from_dgl(given)
    mixed = full()
    mixed.is_homogeneous = False
    with pytest.raises(UserError, match=r"heterograph of DGL.*dgl\.to_homogeneous"):
        from_dgl(mixed)

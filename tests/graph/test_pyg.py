"""PyTorch Geometric: what `Data` holds comes in, from stand-ins and the real one if it is there."""

import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import load, save_npz
from gtjax.graph import from_pyg, many_graphs, to_pyg
from tests.graph.fake_tensor import FakeTensor
from tests.graph.graphs import edge_pairs, make_graph
from tests.nn.test_pyg import torch_python


class Data(SimpleNamespace):
    """Attributes, and as in PyG a length that is not that of a list."""

    def __len__(self):
        return 2

    def __getitem__(self, key):
        return getattr(self, key)


def data(**changes):
    fields = {
        "x": [[1.0, 2], [3, 4], [5, 6]],
        "edge_index": [[0, 1], [1, 2]],
        "edge_attr": [0.5, 1.5],
        "y": [0, 1, 1],
        "train_mask": [True, False, False],
        "val_mask": [False, True, False],
    } | changes
    tensors = {k: None if v is None else FakeTensor(v) for k, v in fields.items()}
    return Data(**tensors, num_nodes=3)


def test_all_of_it_comes_in():
    graph = from_pyg(data(), name="toy")
    assert edge_pairs(graph) == [(0, 1), (1, 2)]
    assert graph.x_nf.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert graph.labels_n.tolist() == [0, 1, 1]
    assert graph.edge_x_ef is not None
    assert graph.edge_x_ef.tolist() == [[0.5], [1.5]]
    assert {k: v.tolist() for k, v in graph.split_n.items()} == {
        "train": [True, False, False],
        "val": [False, True, False],
    }
    assert graph.name == "toy"


def test_all_but_the_edges_may_be_missing():
    graph = from_pyg(data(x=None, edge_attr=None, y=None))
    assert graph.x_nf.shape == (3, 0)
    assert graph.edge_x_ef is None
    assert graph.labels_n.tolist() == [-1, -1, -1]
    assert not graph.split_n  # masks of nothing that is known


@pytest.mark.parametrize(
    ("y", "labels", "kind"),
    [
        ([[0], [2], [1]], [0, 2, 1], "classes"),
        ([0.0, 1.0, 1.0], [0, 1, 1], "real"),
        ([[0.5], [1.0], [np.nan]], [0.5, 1, np.nan], "real"),
        ([[0, 1], [1, 0], [1, 1]], [[0, 1], [1, 0], [1, 1]], "multilabel"),
        ([[0.0, 1], [np.nan, 0], [1, 1]], [[0, 1], [-1, 0], [1, 1]], "multilabel"),
        ([[0.5, 1], [1, 0], [1, 1]], [[0.5, 1], [1, 0], [1, 1]], "real"),
    ],
)
def test_the_type_of_y_says_what_is_asked(y, labels, kind):
    graph = from_pyg(data(y=y, train_mask=None, val_mask=None))
    np.testing.assert_array_equal(graph.labels_n, np.asarray(labels, np.float32))
    assert (graph.is_real, graph.is_multilabel) == (kind == "real", kind == "multilabel")


def test_masks_of_several_splits():
    masks = [[True, False], [False, True], [False, False]]
    graph = from_pyg(data(train_mask=masks, val_mask=None), split=1)
    assert graph.split_n["train"].tolist() == [False, True, False]
    with pytest.raises(UserError, match="train_mask holds splits 0 to 1: there is no split 2"):
        from_pyg(data(train_mask=masks), split=2)


def graph_data(label):
    return data(y=label, train_mask=None, val_mask=None)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_is_many_graphs(kind):
    graph = from_pyg(kind(graph_data([label]) for label in (1, 0)))
    assert graph.graphs is not None
    assert graph.labels.tolist() == [1, 0]
    assert graph.num_nodes == 6
    several = from_pyg([graph_data([[1.0, np.nan]]), graph_data([[0.0, 1.0]])])
    assert several.labels.tolist() == [[1, -1], [0, 1]]
    assert from_pyg([graph_data(0.5), graph_data(2.0)]).is_real


class DataSet:
    """As a data set of OGB."""

    name = "toys"

    def __init__(self, items, split=None):
        self._items, self._split = items, split

    def __len__(self):
        return len(self._items)

    def __getitem__(self, number):
        return self._items[number]

    def get_idx_split(self):
        return self._split


def test_a_data_set_brings_its_name_and_split():
    split = {"train": FakeTensor([0]), "valid": FakeTensor([1]), "test": FakeTensor([2])}
    graph = from_pyg(DataSet([graph_data([label]) for label in (1, 0, 1)], split))
    assert graph.name == "toys"
    assert {k: np.flatnonzero(v).tolist() for k, v in graph.splits.items()} == {
        "train": [0],
        "val": [1],
        "test": [2],
    }
    assert from_pyg(DataSet([data()])).graphs is None  # one large graph
    assert from_pyg(DataSet([data()], split)).split_n["test"].tolist() == [False, False, True]


def test_a_batch_has_a_label_for_each_graph_or_for_each_node():
    batch = {"batch": [0, 0, 1], "edge_index": [[0, 1], [1, 0]], "train_mask": None}
    graph = from_pyg(data(y=[4, 2], val_mask=None, **batch))
    assert graph.graphs is not None
    assert graph.graphs.ids_n.tolist() == [0, 0, 1]
    assert graph.labels.tolist() == [4, 2]
    assert from_pyg(data(**batch)).labels_n.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "takes a torch_geometric Data .* found NoneType"),
        ("cora.pt", "found str"),
        ({"edge_index": 1}, "found dict"),
        (np.zeros((2, 3)), "found ndarray"),
        ([], "at least one graph"),
        ([data(), 3], "found int"),
        ([data()], "one number or .*Batch.from_data_list"),
        ([graph_data(None)], "every graph of a list has a label y; found none in 0"),
        ([graph_data([[1, 0]]), graph_data([1])], "as many labels"),
        (data(edge_index=[0, 1, 2]), r"edge_index is \[2, edges\]; found shape \[3\]"),
        (data(edge_index=[[0, 1], [1, 9]]), r"node numbers are in 0\.\.2; found 9"),
        (data(edge_attr=[1.0]), "edge_attr: 2 rows"),
        (data(y=[0, 1]), "labels_n"),
        (Data(edge_index=FakeTensor([[0], [0]]), x=None, num_nodes=None), "x, or with num_nodes"),
        (Data(edge_index=None, adj_t=1), "found adj_t alone. Leave ToSparseTensor out"),
        (Data(edge_types=[], node_types=[]), r"HeteroData\. .*data\.to_homogeneous\(\)"),
    ],
)
def test_what_is_no_graph_is_refused_with_a_way_out(given, message):
    with pytest.raises(UserError, match=message):
        from_pyg(given)


def test_without_pyg_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match="pip install torch torch_geometric"):
        to_pyg(make_graph([0], [1], 2))
    with pytest.raises(UserError, match=r"to_pyg takes a gtjax\.Graph; found NoneType"):
        to_pyg(None)


def test_a_broken_tensor_is_named():
    with pytest.raises(GraphFormatError, match="x: a rectangular array"):
        from_pyg(Data(**vars(data()) | {"x": _Sparse()}))


class _Sparse(FakeTensor):
    def __init__(self):
        super().__init__([1, 2, 3])

    def cpu(self):
        raise RuntimeError("sparse tensors do not have that")


def test_the_real_one_there_and_back(tmp_path):
    """Both ways in a Python that has PyG; it needs no jax for that."""
    rng = np.random.default_rng(0)
    graph = make_graph(
        [0, 1, 2, 2],
        [1, 2, 0, 1],
        3,
        labels_n=np.array([0, -1, 1]),
        split_n={"train": [0], "test": [2]},
        edge_x_ef=rng.random((4, 2), np.float32),
    )
    many = many_graphs([graph, make_graph([1], [0], 2, edge_x_ef=[[1.0, 2.0]])], [0.5, 1.5])
    save_npz(graph, tmp_path / "one.npz")
    save_npz(many, tmp_path / "many.npz")
    script, root = Path(__file__).with_name("pyg_round_trip.py"), Path(__file__).parents[2]
    packages = sysconfig.get_path("purelib")
    words = [torch_python(), str(script), str(root), packages, str(tmp_path)]
    subprocess.run(words, check=True, timeout=300)
    assert load(tmp_path / "one.again.npz").fingerprint == graph.fingerprint
    for name in ("list", "batch"):
        assert load(tmp_path / f"{name}.again.npz").fingerprint == many.fingerprint

"""Our own .npz: what its keys mean, what is refused, and that saving and loading are inverse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sample_files import NODES, edges, features, npz_arrays, sparse_npz_arrays

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets import Limits, load, save_npz
from gtjax.graph import Graph


def saved(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = folder / "toy.npz"
    np.savez(path, **arrays)
    return path


def without(arrays: dict[str, np.ndarray], *prefixes: str) -> dict[str, np.ndarray]:
    return {key: value for key, value in arrays.items() if not key.startswith(prefixes)}


def test_an_undirected_graph_has_every_edge_in_both_directions(tmp_path):
    graph = load(saved(tmp_path, npz_arrays()))
    sender, receiver = edges()
    expected = {*zip(sender, receiver, strict=True), *zip(receiver, sender, strict=True)}
    found = list(zip(graph.senders_e, graph.receivers_e, strict=True))
    assert set(found) == expected
    assert len(found) == 2 * len(sender)
    assert graph.name == "toy"


def test_a_directed_graph_keeps_its_edges_in_order(tmp_path):
    graph = load(saved(tmp_path, npz_arrays() | {"is_directed": np.bool_(True)}))
    np.testing.assert_array_equal(np.stack([graph.senders_e, graph.receivers_e]), edges())


def test_edge_types_become_one_hot_on_both_directions(tmp_path):
    graph = load(saved(tmp_path, npz_arrays()))
    types = np.arange(31) % 4
    assert graph.edge_x_ef is not None
    np.testing.assert_array_equal(graph.edge_x_ef, np.eye(4)[np.tile(types, 2)])


@pytest.mark.parametrize("split", [0, 1])
def test_the_split_number_selects_a_column_of_the_masks(tmp_path, split):
    arrays = npz_arrays()
    graph = load(saved(tmp_path, arrays), split=split)
    for name in ("train", "val", "test"):
        np.testing.assert_array_equal(graph.split_n[name], arrays[f"{name}_mask"][:, split])


def test_a_split_that_is_not_stored_is_the_callers_mistake(tmp_path):
    with pytest.raises(UserError, match="splits 0 to 1: there is no split 2"):
        load(saved(tmp_path, npz_arrays()), split=2)
    with pytest.raises(UserError, match="no splits"):
        load(saved(tmp_path, without(npz_arrays(), "train", "val", "test")), split=1)


def test_sparse_features_become_the_same_dense_float32(tmp_path):
    graph = load(saved(tmp_path, sparse_npz_arrays()))
    np.testing.assert_array_equal(graph.x_nf, features())
    assert graph.x_nf.dtype == np.float32


def test_dense_float16_features_stay_float16(tmp_path):
    half = features().astype(np.float16)
    graph = load(saved(tmp_path, npz_arrays() | {"features": half}))
    assert graph.x_nf.dtype == np.float16
    np.testing.assert_array_equal(graph.x_nf, half)


def test_features_and_labels_may_be_missing(tmp_path):
    arrays = without(npz_arrays(), "features", "labels", "train", "val", "test")
    graph = load(saved(tmp_path, arrays))
    assert graph.x_nf.shape == (NODES, 0)
    assert (graph.labels_n == -1).all()
    assert dict(graph.split_n) == {}


def test_keys_that_leak_labels_and_unknown_keys_change_nothing(tmp_path):
    plain = load(saved(tmp_path, without(npz_arrays(), "node_year")))
    extra = {"pos": np.arange(NODES), "notes": np.array(["a", "b"]), "node_year": np.ones(NODES)}
    assert load(saved(tmp_path, npz_arrays() | extra)).fingerprint == plain.fingerprint


def test_big_endian_and_fortran_order_are_read_by_value(tmp_path):
    other = npz_arrays() | {
        "features": np.asfortranarray(features()).astype(">f4", order="F"),
        "edge_index": edges().astype(">i8"),
    }
    plain = load(saved(tmp_path, npz_arrays())).fingerprint
    assert load(saved(tmp_path, other)).fingerprint == plain


@pytest.mark.parametrize("key", ["edge_index", "num_nodes", "is_directed", "feat_indptr"])
def test_a_missing_required_key_is_named(tmp_path, key):
    path = saved(tmp_path, without(sparse_npz_arrays(), key))
    with pytest.raises(GraphFormatError, match="required") as caught:
        load(path)
    assert caught.value.field == key
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"edge_index": edges().T}, "edge_index"),
        ({"edge_index": edges() + 0.5}, "edge_index"),
        ({"edge_index": edges() + 1}, "receivers_e"),
        ({"edge_index": edges() - 5}, "senders_e"),
        ({"num_nodes": np.int32(NODES + 1)}, "features"),
        ({"num_nodes": np.int64(-1)}, "num_nodes"),
        ({"num_nodes": np.array([3, 4])}, "num_nodes"),
        ({"is_directed": np.int32(0)}, "is_directed"),
        ({"features": np.full((NODES, 2), np.nan)}, "x_nf"),
        ({"features": features()[0]}, "features"),
        ({"features": features().astype(complex)}, "features"),
        ({"labels": np.full(NODES, -2)}, "labels_n"),
        ({"labels": np.arange(NODES, dtype=complex)}, "labels"),
        ({"labels": np.full(NODES, np.inf)}, "labels_n"),
        ({"labels": np.full(NODES, np.nan)}, "split_n['train']"),
        ({"labels": np.array(["x"] * NODES)}, "labels"),
        ({"train_mask": np.ones(NODES, bool)}, "split_n['val']"),
        ({"train_mask": np.ones(NODES, np.uint8)}, "train_mask"),
        ({"train_mask": np.ones((NODES, 0), bool)}, "train_mask"),
        ({"edge_type": np.full(31, -1)}, "edge_type"),
        ({"edge_type": np.zeros(30, int)}, "edge_x_ef"),
        ({"feat_shape": np.array([NODES, 6])}, "features"),
    ],
)
def test_a_broken_rule_names_file_and_field(tmp_path, change, field):
    path = saved(tmp_path, npz_arrays() | change)
    with pytest.raises(GraphFormatError) as caught:
        load(path)
    assert (caught.value.field, caught.value.file) == (field, str(path))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"feat_shape": np.array([NODES, 5])}, "feat_indices"),
        ({"feat_shape": np.array([NODES])}, "feat_shape"),
        ({"feat_indptr": np.zeros(NODES + 1, int)}, "feat_indptr"),
        ({"feat_indptr": np.zeros(NODES, int)}, "feat_indptr"),
        ({"feat_data": np.ones(1)}, "feat_data"),
    ],
)
def test_sparse_parts_have_to_fit_together(tmp_path, change, field):
    with pytest.raises(GraphFormatError) as caught:
        load(saved(tmp_path, sparse_npz_arrays() | change))
    assert caught.value.field == field


def test_decreasing_offsets_are_refused(tmp_path):
    arrays = sparse_npz_arrays()
    indptr = arrays["feat_indptr"].copy()
    indptr[3] = indptr[-1]
    with pytest.raises(GraphFormatError, match="never decrease"):
        load(saved(tmp_path, arrays | {"feat_indptr": indptr}))


@pytest.mark.parametrize(
    "change",
    [
        {"feat_shape": np.array([NODES, 2**40])},
        {"edge_type": np.full(31, 2**40)},
    ],
)
def test_what_would_densify_to_too_much_is_refused_before_it_is_made(tmp_path, change):
    with pytest.raises(GraphFormatError, match="at most 1000000 bytes"):
        load(saved(tmp_path, sparse_npz_arrays() | change), limits=Limits(max_bytes=1_000_000))


def test_a_node_count_alone_cannot_ask_for_gigabytes(tmp_path):
    arrays = without(npz_arrays(), "features", "labels", "train", "val", "test")
    path = saved(tmp_path, arrays | {"num_nodes": np.int64(2**32 - 1)})
    with pytest.raises(GraphFormatError, match="at most 1000 bytes"):
        load(path, limits=Limits(max_bytes=1000))


@pytest.mark.parametrize("compress", [False, True])
def test_saving_and_loading_give_the_same_graph(tmp_path, compress):
    rng = np.random.default_rng(3)
    train = rng.random(NODES) < 0.5
    graph = Graph(
        senders_e=rng.integers(NODES, size=40),
        receivers_e=rng.integers(NODES, size=40),
        x_nf=rng.normal(size=(NODES, 3)).astype(np.float16),
        labels_n=rng.integers(-1, 2, (NODES, 4)) | 1,
        split_n={"train": train, "test": ~train},
        edge_x_ef=rng.normal(size=(40, 2)),
    )
    save_npz(graph, tmp_path / "graph.npz", compress=compress)
    again = load(tmp_path / "graph.npz")
    assert again.fingerprint == graph.fingerprint
    assert list(again.split_n) == ["train", "test"]
    assert [file.name for file in tmp_path.iterdir()] == ["graph.npz"]


def test_a_failed_save_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    graph = load(saved(tmp_path, npz_arrays()))
    target = tmp_path / "toy.npz"
    before = target.read_bytes()

    def fail_halfway(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail_halfway)
    with pytest.raises(OSError, match="disk full"):
        save_npz(graph, target)
    assert target.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["toy.npz"]


def test_saving_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(UserError, match="create it"):
        save_npz(load(saved(tmp_path, npz_arrays())), tmp_path / "missing" / "graph.npz")


@pytest.mark.parametrize("name", ["cora", "citeseer", "amazon-photo", "minesweeper", "tolokers"])
def test_real_graphs_match_their_descriptions(real_graphs, name, tmp_path):
    about = json.loads((real_graphs / f"{name}.json").read_text())
    graph = load(real_graphs / f"{name}.npz")
    assert graph.num_nodes == about["num_nodes"]
    assert graph.num_edges == 2 * about["num_edges_stored"]
    assert graph.is_symmetric
    assert (graph.num_features, graph.num_classes) == (about["num_features"], about["num_classes"])
    sizes = [int(graph.split_n[split].sum()) for split in ("train", "val", "test")]
    assert sizes == about["splits"]["sizes_first"]
    save_npz(graph, tmp_path / "again.npz")
    assert load(tmp_path / "again.npz").fingerprint == graph.fingerprint


def test_a_real_directed_graph_with_typed_edges(real_graphs):
    graph = load(real_graphs / "wordnet-synsets.npz", split=4)
    with np.load(real_graphs / "wordnet-synsets.npz", allow_pickle=False) as raw:
        np.testing.assert_array_equal(graph.senders_e, raw["edge_index"][0])
        assert graph.edge_x_ef is not None
        np.testing.assert_array_equal(graph.edge_x_ef.argmax(axis=1), raw["edge_type"])
        np.testing.assert_array_equal(graph.split_n["val"], raw["val_mask"][:, 4])
        assert graph.x_nf.dtype == raw["features"].dtype == np.float16
    assert graph.num_edge_features == 18

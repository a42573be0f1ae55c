"""gnn-benchmark files: made undirected and simple, pickled extras left alone, splits drawn."""

from __future__ import annotations

import numpy as np
import pytest
from sample_files import NODES, edges, features, gnn_benchmark_arrays, labels
from scipy.sparse import csr_matrix

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import load


def saved(folder, arrays):
    path = folder / "toy.npz"
    np.savez(path, **arrays)
    return path


def test_values_are_those_of_the_matrices(tmp_path):
    graph = load(saved(tmp_path, gnn_benchmark_arrays()))
    sender, receiver = edges()
    expected = {*zip(sender, receiver, strict=True), *zip(receiver, sender, strict=True)}
    assert set(zip(graph.senders_e, graph.receivers_e, strict=True)) == expected
    assert graph.num_edges == 62
    np.testing.assert_array_equal(graph.x_nf, features())
    np.testing.assert_array_equal(graph.labels_n, labels())


def test_self_loops_and_repeats_go(tmp_path):
    indices = np.array([0, 1, 1, 0])  # row 0: itself, and node 1 twice; row 1: node 0
    arrays = {
        "adj_data": np.ones(4),
        "adj_indices": indices,
        "adj_indptr": np.array([0, 3, 4, 4]),
        "adj_shape": np.array([3, 3]),
    }
    graph = load(saved(tmp_path, arrays))
    assert sorted(zip(graph.senders_e, graph.receivers_e, strict=True)) == [(0, 1), (1, 0)]
    assert graph.x_nf.shape == (3, 0)


def test_a_dense_attribute_matrix_is_read_as_well(tmp_path):
    arrays = {k: v for k, v in gnn_benchmark_arrays().items() if not k.startswith("attr")}
    graph = load(saved(tmp_path, arrays | {"attr_matrix": features()}))
    np.testing.assert_array_equal(graph.x_nf, features())


def test_sparse_labels_are_multi_label(tmp_path):
    arrays = gnn_benchmark_arrays()
    table = (np.arange(NODES * 2).reshape(NODES, 2) % 3 == 0).astype(np.float32)
    matrix = csr_matrix(table)
    del arrays["labels"]
    arrays |= {f"labels_{k}": getattr(matrix, k) for k in ("data", "indices", "indptr")}
    graph = load(saved(tmp_path, arrays | {"labels_shape": np.array(table.shape)}))
    np.testing.assert_array_equal(graph.labels_n, table)
    assert graph.is_multilabel
    assert sum(int(mask.sum()) for mask in graph.split_n.values()) == NODES


def test_pickled_names_are_never_opened(tmp_path):
    names = np.array([f"paper {i}" for i in range(NODES)], dtype=object)
    assert load(saved(tmp_path, gnn_benchmark_arrays() | {"node_names": names})).num_nodes == NODES


def test_the_split_is_by_seed_and_number_and_covers_every_class(tmp_path):
    arrays = gnn_benchmark_arrays()
    count = 200
    arrays |= {"adj_shape": np.array([count, count]), "labels": np.arange(count) % 4 - 1}
    arrays["adj_indptr"] = np.pad(arrays["adj_indptr"], (0, count - NODES), mode="edge")
    path = saved(tmp_path, {k: v for k, v in arrays.items() if not k.startswith("attr")})
    graph, again = load(path, seed=1), load(path, seed=1)
    assert graph.fingerprint == again.fingerprint
    for mask, share in (("train", 0.6), ("val", 0.2), ("test", 0.2)):
        counts = np.bincount(graph.labels_n[graph.split_n[mask]], minlength=3)
        np.testing.assert_array_equal(counts, [50 * share] * 3)
    others = [load(path, seed=1, split=1), load(path, seed=2)]
    drawn = [tuple(np.flatnonzero(g.split_n["train"])) for g in (graph, *others)]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"adj_shape": np.array([NODES, NODES + 1])}, "adj_shape"),
        ({"adj_shape": np.array([0, 0]), "adj_indptr": np.array([31])}, "adj_indptr"),
        ({"attr_shape": np.array([NODES - 1, 6])}, "attr_indptr"),
        ({"labels": np.array([None] * NODES)}, "labels"),
    ],
)
def test_a_broken_rule_names_file_and_field(tmp_path, change, field):
    path = saved(tmp_path, gnn_benchmark_arrays() | change)
    with pytest.raises(GraphFormatError) as caught:
        load(path)
    assert (caught.value.field, caught.value.file) == (field, str(path))


def test_our_conversion_of_a_real_graph_survives_this_format(real_graphs, tmp_path):
    graph = load(real_graphs / "amazon-photo.npz")
    count = graph.num_nodes
    once = graph.senders_e < graph.receivers_e
    ends = (graph.senders_e[once], graph.receivers_e[once])
    parts = {"adj": csr_matrix((np.ones(once.sum()), ends), (count, count))}
    parts["attr"] = csr_matrix(graph.x_nf)
    arrays = {f"{k}_{p}": getattr(m, p) for k, m in parts.items() for p in ("data", "indices")}
    arrays |= {f"{k}_{p}": getattr(m, p) for k, m in parts.items() for p in ("indptr", "shape")}
    again = load(saved(tmp_path, arrays | {"labels": graph.labels_n}))
    np.testing.assert_array_equal(again.x_nf, graph.x_nf)
    np.testing.assert_array_equal(again.by_receiver.degrees_n, graph.by_receiver.degrees_n)
    sizes = [int(again.split_n[name].sum()) for name in ("train", "val", "test")]
    assert sizes == [pytest.approx(share * count, abs=8) for share in (0.6, 0.2, 0.2)]

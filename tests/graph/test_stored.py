"""`StoredGraph` has the surface of `Graph`, holds nothing, and notices damage."""

from __future__ import annotations

import json
import pickle
import time
import tracemalloc

import numpy as np
import pytest

import gtjax
from gtjax.batching.config import PrepareConfig
from gtjax.batching.prepare import check_stored, prepare_graph
from gtjax.core.errors import UserError
from gtjax.core.growing_array import GrowingArray
from gtjax.core.hashed_files import hash_of_json
from gtjax.datasets.conversion import ConvertOptions, convert
from gtjax.graph import StoredGraph, csr, required_graph, stored
from gtjax.graph.stored_rows import ScaledRows, SparseRows, scaled
from tests.marks import slow


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=211,seed=3")


@pytest.fixture(scope="module")
def folder(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "g"
    convert(graph, folder)
    return folder


@pytest.fixture
def copy(graph, tmp_path):
    convert(graph, tmp_path / "copy")
    return tmp_path / "copy"


def test_it_has_the_surface_of_a_graph(graph, folder):
    found = gtjax.load(folder)
    wanted = prepare_graph(graph, PrepareConfig())
    for name in ("num_nodes", "num_edges", "num_features", "num_edge_features", "num_classes",
                 "is_real", "is_multilabel", "name", "graphs", "links"):  # fmt: skip
        assert getattr(found, name) == getattr(wanted, name), name
    np.testing.assert_array_equal(found.labelled, wanted.labelled)
    np.testing.assert_array_equal(found.by_receiver.offsets, wanted.by_receiver.offsets)
    np.testing.assert_array_equal(found.by_sender.offsets, wanted.by_sender.offsets)
    np.testing.assert_array_equal(found.x_nf[[5, 2, 2]], wanted.x_nf[[5, 2, 2]])
    np.testing.assert_array_equal(found.x_nf[100:], wanted.x_nf[100:])
    assert set(found.splits) == set(wanted.splits)
    assert "211 nodes" in repr(found)
    assert not found.senders_e.flags.writeable
    with pytest.raises(AttributeError, match=r"graph.in_memory\(\).receivers_e"):
        _ = found.receivers_e


def test_edge_ids_are_positions(folder):
    found = gtjax.load(folder)
    own = found.by_receiver
    np.testing.assert_array_equal(csr.edge_ids(own, slice(3, 7)), [3, 4, 5, 6])
    np.testing.assert_array_equal(csr.edge_ids(own, [9, 0, -1]), [9, 0, found.num_edges - 1])
    assert len(own.edge_ids_e) == found.num_edges
    plain = found.in_memory()
    np.testing.assert_array_equal(csr.edge_ids(plain.by_receiver, slice(3, 7)), [3, 4, 5, 6])


def test_in_memory_knows_what_is_known(folder):
    found = gtjax.load(folder)
    plain = found.in_memory()
    assert plain.fingerprint == found.fingerprint
    assert plain.topology_fingerprint == found.topology_fingerprint
    assert plain.symmetrised() is plain
    assert plain.with_self_loops() is plain
    built = csr.build_csr(plain.receivers_e, plain.senders_e, plain.num_nodes)
    for name in ("offsets", "neighbours_e", "edge_ids_e"):
        np.testing.assert_array_equal(getattr(plain.by_receiver, name), getattr(built, name))


def test_the_fingerprint_is_that_of_the_content(graph, folder, tmp_path):
    convert(graph, tmp_path / "again")
    convert(graph, tmp_path / "other", ConvertOptions(self_loops=False))
    same, other = gtjax.load(tmp_path / "again"), gtjax.load(tmp_path / "other")
    found = gtjax.load(folder)
    assert same.fingerprint == found.fingerprint
    assert other.topology_fingerprint != found.topology_fingerprint
    drawn = gtjax.load(folder, split="random:50/25/25")
    assert drawn.fingerprint != found.fingerprint
    assert drawn.topology_fingerprint == found.topology_fingerprint
    assert drawn.fingerprint == gtjax.load(folder, split="random:50/25/25").fingerprint


def test_a_copy_for_another_process_opens_the_folder(folder):
    found = gtjax.load(folder, split="random:50/25/25")
    _ = found.by_receiver, found.x_nf
    sent = pickle.dumps(found)
    assert len(sent) < 2000
    assert pickle.loads(sent).fingerprint == found.fingerprint


def test_another_split_can_be_drawn(graph, folder):
    drawn = gtjax.load(folder, split="stratified:50/25/25:4")
    wanted = graph.with_random_splits(0.5, 0.25, 0.25, seed=4, stratified=True)
    for name, mask_n in wanted.split_n.items():
        np.testing.assert_array_equal(drawn.split_n[name], mask_n)
        np.testing.assert_array_equal(drawn.in_memory().split_n[name], mask_n)
    with pytest.raises(UserError, match="Convert the data again with --split 1"):
        gtjax.load(folder, split=1)


@pytest.mark.parametrize(
    "name", ["by_receiver/senders.npy", "by_sender/edge_ids.npy", "x.npy", "labels.npy"]
)
def test_damage_is_noticed(copy, name):
    path, found = copy / name, gtjax.load(copy)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UserError, match=r"is damaged.*gtjax convert"):
        found.verify()
    if "by_sender" not in name:
        with pytest.raises(UserError, match="is damaged"):
            found.in_memory()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=rf"{name} has .*gtjax convert"):
        gtjax.load(copy)
    path.unlink()
    with pytest.raises(UserError, match=rf"{name} cannot be read"):
        gtjax.load(copy)


def test_a_manifest_that_disagrees_with_the_arrays_is_noticed(copy):
    path = copy / "graph.json"
    content = json.loads(path.read_text())["content"]
    path.write_text(json.dumps({"hash": "0", "content": content}))
    with pytest.raises(UserError, match="its content does not give its hash"):
        gtjax.load(copy)
    for name, value in (("nodes", 210), ("edges", 5), ("features", 3)):
        changed = content | {"graph": content["graph"] | {name: value}}
        path.write_text(json.dumps({"hash": hash_of_json(changed), "content": changed}))
        with pytest.raises(UserError, match="gtjax convert"):
            gtjax.load(copy)


def test_what_does_not_fit_is_refused_with_what_it_needs(folder, monkeypatch):
    monkeypatch.setattr(stored, "available_memory", lambda: 10_000)
    found = gtjax.load(folder)
    for function, advice in (("fit", "fewer bytes a feature"), ("plan", "gtjax plan --nodes 211")):
        with pytest.raises(UserError, match=rf"{function} takes all of .* GiB free.*{advice}"):
            required_graph(found, function)
    needed = found.memory_bytes + stored.BESIDE["fit"] * found.num_edges
    monkeypatch.setattr(stored, "available_memory", lambda: needed)
    assert required_graph(found, "fit").num_nodes == 211


def test_a_run_that_wants_other_edges_is_told(graph, folder, tmp_path):
    check_stored(gtjax.load(folder), PrepareConfig(symmetrise=False))  # it was symmetric before
    ring = np.stack([np.arange(7), (np.arange(7) + 1) % 7])
    graph = gtjax.from_edges(ring, x_nf=np.eye(7))
    convert(graph, tmp_path / "ring")
    found = gtjax.load(tmp_path / "ring")
    check_stored(found, PrepareConfig())
    with pytest.raises(UserError, match=r"with --no-symmetrise, or run with --prepare.symmetrise"):
        check_stored(found, PrepareConfig(symmetrise=False))
    with pytest.raises(UserError, match=r"with --no-self-loops, or run with --prepare.self-loops"):
        prepare_graph(found, PrepareConfig(self_loops=False))
    convert(graph, tmp_path / "bare", ConvertOptions(symmetrise=False, self_loops=False))
    bare = gtjax.load(tmp_path / "bare")
    check_stored(bare, PrepareConfig())  # in memory they can be added
    with pytest.raises(UserError, match=r"with --symmetrise, or run with --prepare.no-symmetrise"):
        bare.check_prepared(symmetrise=True, self_loops=True)
    assert prepare_graph(bare, PrepareConfig()).num_edges == found.num_edges


def test_rows_of_all_forms_are_indexed_alike():
    rng = np.random.default_rng(0)
    dense_nf = (rng.normal(size=(37, 5)) * (rng.random((37, 5)) < 0.4)).astype(np.float32)
    dense_nf[3] = 0
    row_v, column_v = np.nonzero(dense_nf)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row_v, minlength=37))])
    sparse = SparseRows(offsets, column_v, dense_nf[row_v, column_v], 5)
    values_nf, scale_n = scaled(dense_nf)
    close = ScaledRows(values_nf, scale_n)
    mask_n = rng.random(37) < 0.5
    for some in (slice(None), slice(4, 9), slice(9, 4), slice(30, 99), slice(None, None, 3),
                 [5, 3, 3, -1], np.array([0, 36]), mask_n, [], 7):  # fmt: skip
        some = np.array(some, int) if isinstance(some, list) else some
        np.testing.assert_array_equal(sparse[some], dense_nf[some])
        np.testing.assert_allclose(close[some], dense_nf[some], atol=np.abs(dense_nf).max() / 254)
    assert sparse.shape == close.shape == dense_nf.shape
    assert len(sparse) == len(close) == 37


def sparse_file(path, dtype, rows):
    """An array of zeros that takes no room on the disk."""
    path.parent.mkdir(exist_ok=True)
    array = GrowingArray(path, dtype)
    array.rows = rows
    array.finish()
    with path.open("r+b") as stream:
        stream.truncate(128 + rows * np.dtype(dtype).itemsize)


@pytest.mark.parametrize("nodes", [1_000_003, slow(100_000_007)])
def test_more_edges_than_2_to_the_31_open_in_an_instant_and_hold_nothing(tmp_path, nodes):
    edges, folder = 2**31 + 11, tmp_path / "g"
    folder.mkdir()
    files = {
        stored.OFFSETS: (np.int64, nodes + 1),
        stored.SENDERS: (np.int32, edges),
        stored.OUT_OFFSETS: (np.int64, nodes + 1),
        stored.RECEIVERS: (np.int32, edges),
        stored.EDGE_IDS: (np.int64, edges),
        stored.LABELS: (np.int32, nodes),
    }
    for name, (dtype, rows) in files.items():
        sparse_file(folder / name, dtype, rows)
    empty = GrowingArray(folder / stored.X, np.float32, (0,))
    empty.rows = nodes
    empty.finish()
    for name in (stored.OFFSETS, stored.OUT_OFFSETS):  # all edges are those of the last node
        with (folder / name).open("r+b") as stream:
            stream.seek(-8, 2)
            stream.write(edges.to_bytes(8, "little"))
    with (folder / stored.SENDERS).open("r+b") as stream:
        stream.seek(-4, 2)
        stream.write((123).to_bytes(4, "little"))
    arrays = {
        name: {"shape": [rows], "dtype": np.dtype(d).str} for name, (d, rows) in files.items()
    }
    arrays[stored.X] = {"shape": [nodes, 0], "dtype": "<f4"}
    facts = {"name": "sparse", "nodes": nodes, "edges": edges, "features": 0, "classes": 0}
    facts |= {"names": {"classes": [], "features": []}, "split": 0, "symmetrise": False}
    facts |= {"self_loops": False, "added": {"symmetrise": 0, "self_loops": 0}}
    known = {"format": stored.FORMAT.name, "version": stored.FORMAT.version, "graph": facts}
    content = known | {"arrays": arrays, "files": dict.fromkeys(arrays, "not hashed")}
    manifest = {"hash": hash_of_json(content), "content": content}
    (folder / stored.FORMAT.manifest).write_text(json.dumps(manifest))
    tracemalloc.start()
    begun = time.perf_counter()
    found = gtjax.load(folder)
    seconds, (_, peak) = time.perf_counter() - begun, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, StoredGraph)
    assert seconds < 1
    assert peak < 1e6
    assert found.num_edges == edges
    own = found.by_receiver
    last = slice(int(own.offsets[nodes]) - 3, int(own.offsets[nodes]))
    np.testing.assert_array_equal(own.neighbours_e[last], [0, 0, 123])
    np.testing.assert_array_equal(csr.edge_ids(own, last), [edges - 3, edges - 2, edges - 1])
    assert found.memory_bytes > 12 * edges

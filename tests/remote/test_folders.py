"""Graphs and partitions at an address: the same as in a folder, fetched file by file, checked."""

from __future__ import annotations

import pickle
import shutil
import uuid

import fsspec
import numpy as np
import pytest

import gtjax
from gtjax.core.errors import UserError
from gtjax.datasets.conversion import convert
from gtjax.graph import StoredGraph
from gtjax.partition import partition_graph
from gtjax.partition.store import open_partition, save_partition
from gtjax.remote import folder as folders
from gtjax.remote import listing as listings
from gtjax.remote import upload as uploads
from gtjax.remote.problems import StoreError


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}/graph"


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=97")


def objects(address):
    system, root = fsspec.core.url_to_fs(address)
    return {path.removeprefix(f"{root}/"): path for path in system.find(root)}


def flip(address, name):
    system, _ = fsspec.core.url_to_fs(address)
    path = objects(address)[name]
    data = bytearray(system.cat_file(path))
    data[-1] ^= 4
    system.pipe_file(path, bytes(data))


def fetched(tmp_path):
    return {path.name for path in (tmp_path / "cache").rglob("*.npy")}


def test_a_graph_is_stored_and_fetched_file_by_file(address, graph, tmp_path):
    convert(graph, address)
    assert not fetched(tmp_path)  # what was written on the way is gone
    found = gtjax.load(address)
    assert isinstance(found, StoredGraph)
    assert found.num_edges > 0
    assert not fetched(tmp_path)
    whole = found.in_memory()
    assert "receivers.npy" not in fetched(tmp_path)  # of the other order, which nobody asked for
    local = convert(graph, tmp_path / "local").in_memory()
    assert whole.fingerprint == local.fingerprint
    np.testing.assert_array_equal(whole.x_nf, local.x_nf)
    np.testing.assert_array_equal(whole.senders_e, local.senders_e)
    again = pickle.loads(pickle.dumps(found))
    assert again.address == address
    found.verify()


def test_files_are_in_pieces_and_an_upload_goes_on(address, graph, tmp_path, monkeypatch):
    for module in (listings, uploads):
        monkeypatch.setattr(module, "PIECE_BYTES", 256)
    written = []
    write = folders.ObjectStore.write

    def failing(self, name, data):
        if len(written) == 7:
            raise StoreError("cut off")
        written.append(name)
        write(self, name, data)

    monkeypatch.setattr(folders.ObjectStore, "write", failing)
    with pytest.raises(StoreError, match="cut off"):
        convert(graph, address)
    with pytest.raises(UserError, match=r"listing\.json is not there"):
        gtjax.load(address)
    first = list(written)
    written.clear()
    monkeypatch.setattr(
        folders.ObjectStore, "write", lambda *args: (written.append(args[1]), write(*args))[1]
    )
    convert(graph, address)
    assert "x.npy.00001" in objects(address)
    assert not set(first) & set(written)
    assert written[-1] == "listing.json"
    assert gtjax.load(address).in_memory().num_nodes == graph.num_nodes
    with pytest.raises(UserError, match="new folder"):
        convert(graph, address)


@pytest.mark.parametrize("name", ["x.npy", "listing.json", "graph.json"])
def test_damage_in_the_store_is_told(address, graph, name, tmp_path):
    convert(graph, address)
    shutil.rmtree(tmp_path / "cache")
    flip(address, name)
    with pytest.raises(UserError, match=r"damaged.*gtjax convert"):
        gtjax.load(address).in_memory()


def test_a_download_goes_on_with_what_is_there(address, graph, tmp_path, monkeypatch):
    for module in (listings, uploads):
        monkeypatch.setattr(module, "PIECE_BYTES", 256)
    convert(graph, address)
    read, asked = folders.ObjectStore.read_checked, []

    def failing(self, name, size, digest):
        asked.append(name)
        if name == "x.npy.00003":
            raise StoreError("cut off")
        return read(self, name, size, digest)

    monkeypatch.setattr(folders.ObjectStore, "read_checked", failing)
    with pytest.raises(StoreError, match="cut off"):
        _ = gtjax.load(address).x_nf
    asked.clear()
    monkeypatch.setattr(
        folders.ObjectStore, "read_checked", lambda *args: (asked.append(args[1]), read(*args))[1]
    )
    _ = gtjax.load(address).x_nf
    assert "x.npy.00003" in asked
    assert "x.npy.00002" not in asked


def test_each_process_fetches_its_part_alone(address, graph, tmp_path):
    partition = partition_graph(graph, 4, "random", seed=0)
    save_partition(address, graph, partition)
    save_partition(tmp_path / "local", graph, partition)
    found, local = open_partition(address), open_partition(tmp_path / "local")
    np.testing.assert_array_equal(found.part(2).x_nf, local.part(2).x_nf)
    here = {path.parent.name for path in (tmp_path / "cache").rglob("part-*/*.npy")}
    assert here == {"part-00002"}
    flip(address, "part-00001/senders.npy")
    with pytest.raises(UserError, match="damaged"):
        found.part(1)


def test_something_else_in_the_way_is_not_touched(address, graph):
    system, root = fsspec.core.url_to_fs(address)
    system.pipe_file(f"{root}/thesis.pdf", b"mine")
    with pytest.raises(UserError, match=r"holds thesis\.pdf"):
        convert(graph, address)
    assert list(objects(address)) == ["thesis.pdf"]

"""A stored partition gives back what was stored, part by part, or an error that names the file."""

import contextlib
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings

from gtjax.core import hashed_files, hashed_folder
from gtjax.core.errors import UserError
from gtjax.core.hashed_files import hash_of_json
from gtjax.graph import GENERATORS
from gtjax.partition import Partition, open_partition, read_owners, save_partition, store
from tests.graph.graphs import make_graph
from tests.partition.partitions import partitioned_graphs

GRAPH = GENERATORS["synthetic-citation"](nodes=53, mean_degree=4.0, features=3)
PARTITION = Partition(np.arange(53) % 5 // 2 * 2, 5)  # parts 1 and 3 are empty


@pytest.fixture
def folder(tmp_path):
    save_partition(tmp_path / "stored", GRAPH, PARTITION)
    return tmp_path / "stored"


def assert_whole(graph, partition, stored):
    """Every node and edge is in the part of its owner, once, with all its data."""
    assert stored.partition.owner_n.tolist() == partition.owner_n.tolist()
    assert stored.cut.to_json() == partition.cut(graph).to_json()
    assert stored.graph_fingerprint == graph.fingerprint
    nodes, edges = [], []
    for number in range(partition.num_parts):
        part = stored.part(number)
        assert (partition.owner_n[part.nodes_n] == number).all()
        assert part.nodes_n.tolist() == sorted(part.nodes_n.tolist())
        assert part.receivers_e.tolist() == sorted(part.receivers_e.tolist())
        ids = part.edge_ids_e
        assert part.senders_e.tolist() == graph.senders_e[ids].tolist()
        assert part.receivers_e.tolist() == graph.receivers_e[ids].tolist()
        assert (partition.owner_n[part.receivers_e] == number).all()
        assert part.x_nf.tobytes() == graph.x_nf[part.nodes_n].tobytes()
        assert part.labels_n.tolist() == graph.labels_n[part.nodes_n].tolist()
        assert set(part.split_n) == set(graph.split_n)
        for name, mask_n in part.split_n.items():
            assert mask_n.tolist() == graph.split_n[name][part.nodes_n].tolist()
        if graph.edge_x_ef is None:
            assert part.edge_x_ef is None
        else:
            assert part.edge_x_ef.tobytes() == graph.edge_x_ef[ids].tobytes()
        nodes += part.nodes_n.tolist()
        edges += part.edge_ids_e.tolist()
    assert sorted(nodes) == list(range(graph.num_nodes))
    assert sorted(edges) == list(range(graph.num_edges))


def test_every_part_comes_back(folder):
    stored = open_partition(folder)
    assert_whole(GRAPH, PARTITION, stored)
    assert stored.num_parts == 5
    assert not len(stored.part(1).nodes_n)
    assert [path.name for path in folder.parent.iterdir()] == ["stored"]  # nothing temporary stays


@given(partitioned_graphs())
@settings(max_examples=20)
def test_any_graph_comes_back(tmp_path_factory, case):
    graph, partition = case
    folder = tmp_path_factory.mktemp("partition") / "a" / "b"
    save_partition(folder, graph, partition)
    assert_whole(graph, partition, open_partition(folder))


def test_a_part_is_mapped_and_only_its_own_files_are_read(folder):
    for path in (folder / "part-00002").iterdir():
        path.unlink()
    part = open_partition(folder).part(0)
    assert isinstance(part.x_nf, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        part.x_nf[0] = 1


def test_a_part_is_checked_once(folder, monkeypatch):
    stored = open_partition(folder)
    first = stored.part(2)
    monkeypatch.setattr(hashed_files, "hash_of_file", lambda path: pytest.fail("hashed again"))
    assert stored.part(2) is first


def all_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def open_everything(folder):
    stored = open_partition(folder)
    return stored.partition, [stored.part(number) for number in range(stored.num_parts)]


def test_a_flipped_bit_is_found_in_every_file(folder):
    rng = np.random.default_rng(0)
    for path in all_files(folder):
        good = path.read_bytes()
        for at in {0, len(good) - 1, *rng.integers(0, len(good), 6).tolist()}:
            bad = bytearray(good)
            bad[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(bad)
            if path.name != store.FORMAT.manifest:
                with pytest.raises(UserError, match=path.name):
                    open_everything(folder)
                continue
            # Between the tokens of JSON a byte may change and mean the same.
            with contextlib.suppress(UserError):
                assert_whole(GRAPH, PARTITION, open_partition(folder))
        path.write_bytes(good)
    open_everything(folder)


def test_a_truncated_file_is_found_wherever_it_ends(folder):
    rng = np.random.default_rng(1)
    for path in all_files(folder):
        good = path.read_bytes()
        # The manifest may lose its last newline, and nothing else.
        last = len(good) - (2 if path.name == store.FORMAT.manifest else 1)
        for end in {0, 1, last, *rng.integers(0, last, 5).tolist()}:
            path.write_bytes(good[:end])
            with pytest.raises(UserError, match=path.name):
                open_everything(folder)
        path.write_bytes(good)
    open_everything(folder)


def test_a_missing_file_is_named(folder):
    for path in all_files(folder):
        aside = folder.parent / "aside"
        shutil.move(path, aside)
        with pytest.raises(UserError, match=path.name):
            open_everything(folder)
        shutil.move(aside, path)


def test_files_of_another_part_do_not_pass(folder):
    one, other = folder / "part-00000" / "x.npy", folder / "part-00002" / "x.npy"
    other.write_bytes(one.read_bytes())
    with pytest.raises(UserError, match=r"part-00002.x\.npy is damaged"):
        open_partition(folder).part(2)


def test_another_version_is_refused(folder, monkeypatch):
    path = folder / store.FORMAT.manifest
    content = json.loads(path.read_text())["content"] | {"version": 2}
    path.write_text(json.dumps({"hash": hash_of_json(content), "content": content}))
    with pytest.raises(UserError, match=r"version 2; this gtjax reads .* version 1"):
        open_partition(folder)


def test_mistakes_are_named(tmp_path, folder):
    with pytest.raises(UserError, match="not the folder of a partition"):
        open_partition(tmp_path)
    with pytest.raises(UserError, match=r"parts 0\.\.4; there is no part 5"):
        open_partition(folder).part(5)
    with pytest.raises(UserError, match="written to a new folder"):
        save_partition(folder, GRAPH, PARTITION)
    with pytest.raises(UserError, match="each of the graph's 3 nodes"):
        save_partition(tmp_path / "new", make_graph([], [], 3), PARTITION)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        save_partition(tmp_path / "file" / "folder", GRAPH, PARTITION)


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hashed_folder, "write_manifest", fail)
    with pytest.raises(UserError, match="No space left on device"):
        save_partition(tmp_path / "stored", GRAPH, PARTITION)
    assert list(tmp_path.iterdir()) == []


def test_owners_of_another_program(tmp_path):
    path = tmp_path / "owner.npy"
    np.save(path, np.array([0, 2, 1], np.int64))
    assert read_owners(path, 3).owner_n.tolist() == [0, 2, 1]
    with pytest.raises(UserError, match=r"0\.\.1 for 2 parts; found 2"):
        read_owners(path, 2)
    np.save(path, np.array([0, None, 1]), allow_pickle=True)
    with pytest.raises(UserError, match=r"owner\.npy is not a \.npy file of integers"):
        read_owners(path, 3)
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"owner\.npy is not"):
        read_owners(path, 3)
    np.savez(tmp_path / "several.npz", a=[1])
    with pytest.raises(UserError, match="holds several arrays"):
        read_owners(tmp_path / "several.npz", 3)
    with pytest.raises(UserError, match="No such file"):
        read_owners(tmp_path / "none.npy", 3)

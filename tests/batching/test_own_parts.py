"""Shards that several processes write, each of its own parts, are those that one writes of all."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from gtjax.batching import store
from gtjax.batching.config import PrepareConfig
from gtjax.batching.own_parts import OwnRows, parts_of, why_not, write_own_parts
from gtjax.batching.prepare import open_batch, place_batch, prepare, store_batch
from gtjax.batching.source import Source
from gtjax.core.errors import UserError
from gtjax.distributed.team import OwnBoard, Team
from gtjax.partition import open_partition, partition_graph, save_partition
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import Spread, make_mesh
from gtjax.sharding.stored import open_store
from gtjax.strategies import STRATEGIES, MeshShape, NodeByFeature, number_nodes
from gtjax.strategies.node_halo import NodeHalo
from tests.batching.test_store_batch import with_edge_features
from tests.runs.small_run import small_config
from tests.sharding.test_stored import all_files, assert_as_placed

ABOUT = {"graph": "a graph"}
PARTS = 4


def spread_by(strategy, feature=1):
    shape = MeshShape(PARTS, feature)
    return Spread(strategy, shape, make_mesh(shape))


def prepared(graph, folder, forms=(), how="random"):
    """Settings, the graph as one process prepares it, and the stored partition of it."""
    config = small_config(prepare=PrepareConfig(reorder="never"))
    settings = config.batching(forms, config.task_of(graph))
    host = prepare(graph, settings)
    settings = replace(settings, scaling=host.scale)
    partition = partition_graph(host.edges, PARTS, how)
    save_partition(folder, replace(host.edges, x_nf=graph.x_nf), partition)
    return settings, host, open_partition(folder)


def by_processes(count, folder, stored, settings, spread):
    """All processes at once, each with its share of the parts; the errors that they met."""
    board, errors = OwnBoard(), []

    def run(index):
        own = list(range(PARTS))[index * PARTS // count : (index + 1) * PARTS // count]
        try:
            team = Team(index, count, board)
            write_own_parts(team, folder, stored, settings, spread, own, about=ABOUT)
        except UserError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    return errors


CASES = [
    (STRATEGIES["node_all_gather"], 1, (), 4),
    (STRATEGIES["node_halo"], 1, (), 4),
    (STRATEGIES["node_halo"], 1, (), 2),
    (STRATEGIES["node_halo"], 1, (), 1),
    (STRATEGIES["node_halo"], 1, ("pieces",), 4),
    (STRATEGIES["node_all_gather"], 1, ("strips",), 4),
    (STRATEGIES["node_ring"], 1, ("pieces", "strips"), 4),
    (NodeByFeature(inner=NodeHalo()), 2, (), 4),
]


@pytest.mark.parametrize(
    ("strategy", "feature", "forms", "processes"),
    CASES,
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_every_byte_is_that_of_one_process(graph, tmp_path, strategy, feature, forms, processes):
    settings, host, stored = prepared(graph, tmp_path / "partition", forms)
    spread = spread_by(strategy, feature)
    numbering = number_nodes(stored.partition, None, feature)
    layout = strategy.layout(host.edges, numbering, numbering, spread.shape, forms=forms)
    store_batch(tmp_path / "one", host, layout, spread, about=ABOUT)
    assert not by_processes(processes, tmp_path / "many", stored, settings, spread)
    one, many = (all_files(tmp_path / name) for name in ("one", "many"))
    assert [each.relative_to(tmp_path / "one") for each in one] == [
        each.relative_to(tmp_path / "many") for each in many
    ]
    for a, b in zip(one, many, strict=True):
        if a.suffix == ".npy":
            assert a.read_bytes() == b.read_bytes(), a.name
    assert open_store(tmp_path / "one").tree == open_store(tmp_path / "many").tree
    assert open_store(tmp_path / "many").about == ABOUT
    assert_as_placed(open_batch(tmp_path / "many", spread), open_batch(tmp_path / "one", spread))
    assert not list(tmp_path.glob(".many*"))


def test_an_empty_part_and_unequal_parts(graph, tmp_path):
    from gtjax.partition import Partition

    settings, host, _ = prepared(graph, tmp_path / "any")
    owner_n = np.minimum(np.arange(graph.num_nodes) // 40, 2).astype(np.int32)  # nobody in part 3
    save_partition(tmp_path / "partition", host.edges, Partition(owner_n, PARTS))
    stored, spread = open_partition(tmp_path / "partition"), spread_by(STRATEGIES["node_halo"])
    numbering = number_nodes(stored.partition)
    layout = spread.strategy.layout(host.edges, numbering, numbering, spread.shape)
    store_batch(tmp_path / "one", host, layout, spread, about=ABOUT)
    assert not by_processes(4, tmp_path / "many", stored, settings, spread)
    assert_as_placed(open_batch(tmp_path / "many", spread), open_batch(tmp_path / "one", spread))


def test_what_cannot_be_laid_out_by_parts_is_refused_with_the_reason(graph, tmp_path):
    settings, _, stored = prepared(graph, tmp_path / "partition")
    halo = spread_by(STRATEGIES["node_halo"])
    assert why_not(settings, halo, stored) is None
    ragged = spread_by(NodeHalo(exchange="ragged"))
    assert why_not(settings, ragged, stored) == "node_halo lays out all parts together"
    tiles = replace(settings, forms=("tiles",))
    assert "tiles" in (why_not(tiles, halo, stored) or "")
    positions = replace(settings, positional="random_walk")
    assert "positional" in (why_not(positions, halo, stored) or "")
    unknown = replace(settings, scaling=None)
    assert "scaled" in (why_not(unknown, halo, stored) or "")
    _, _, other = prepared(with_edge_features(graph), tmp_path / "other")
    assert why_not(settings, halo, other) == "edges have features"
    errors = by_processes(2, tmp_path / "many", stored, tiles, halo)
    assert len(errors) == 2
    assert "cannot be laid out one by one: tiles" in errors[0]
    two = Spread(halo.strategy, MeshShape(2), make_mesh(MeshShape(2)))
    errors = by_processes(2, tmp_path / "many", stored, settings, two)
    assert all("holds 4 parts; the mesh is node=2" in each for each in errors)
    assert not (tmp_path / "many").exists()


def test_a_damaged_part_is_an_error_of_all_and_leaves_nothing(graph, tmp_path):
    settings, _, stored = prepared(graph, tmp_path / "partition")
    path = tmp_path / "partition" / "part-00002" / "senders.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    errors = by_processes(4, tmp_path / "many", stored, settings, spread_by(NodeHalo()))
    assert len(errors) == 4
    assert all("part-00002/senders.npy" in each for each in errors)
    assert not list(tmp_path.glob("*many*"))


def test_rows_of_other_parts_are_never_given():
    rows = OwnRows(np.array([2, 5, 7]), np.array([20, 50, 70]), 9)
    assert rows[np.array([7, 0, 2])].tolist()[::2] == [70, 20]  # 0 may be padding
    with pytest.raises(IndexError, match="another part"):
        rows[np.array([3])]
    with pytest.raises(IndexError, match="numbers of nodes"):
        rows[1:2]


def test_a_process_has_the_parts_of_its_devices():
    assert parts_of(make_mesh(MeshShape(2, 2)), 0) == [0, 1]
    assert parts_of(make_mesh(MeshShape(2, 2)), 1) == []


def test_the_folder_of_a_partition_is_a_partitioner(graph, tmp_path):
    _, host, stored = prepared(graph, tmp_path / "partition")
    found = partition_graph(host.edges, PARTS, str(tmp_path / "partition"))
    assert found.fingerprint == stored.partition.fingerprint
    with pytest.raises(UserError, match=r"holds 4 parts; 3 are wanted, .* use as many devices"):
        partition_graph(host.edges, 3, str(tmp_path / "partition"))
    with pytest.raises(UserError, match=r"or the folder of a stored partition .*; found '\./no'"):
        partition_graph(host.edges, 3, "./no")


@pytest.mark.parametrize("same", [True, False])
def test_runs_take_the_parts_of_the_graph_that_they_train_on(graph, tmp_path, monkeypatch, same):
    settings, host, stored = prepared(graph, tmp_path / "partition")
    parallel = ParallelConfig(strategy="node_halo", partitioner=str(tmp_path / "partition"))
    settings = replace(settings, parallel=parallel)
    spread, board, taken, found = spread_by(NodeHalo()), OwnBoard(), [], [None, None]

    def write(team, *arguments, **options):
        taken.append(team.index)
        write_own_parts(team, *arguments, **options)

    monkeypatch.setattr(store, "write_own_parts", write)
    fingerprint = stored.graph_fingerprint if same else graph.fingerprint

    def run(index):
        source = Source(lambda: graph if index == 0 else pytest.fail("only the first reads it"))
        source.in_place = True
        team = Team(index, 2, board)
        found[index] = store.batches_of(team, source, fingerprint, settings, spread, tmp_path)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(taken) == ([0, 1] if same else [])
    numbering = number_nodes(stored.partition)
    layout = NodeHalo().layout(host.edges, numbering, numbering, spread.shape)
    for batches in found:
        assert batches is not None
        assert batches.partition_id == stored.partition.fingerprint
        assert_as_placed(batches.at(0), place_batch(host, layout, spread))

"""Placing host arrays on devices: what arrives, and what it takes."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from gtjax.partition import Partition
from gtjax.sharding.mesh import make_mesh
from gtjax.sharding.place import place_parts, place_rows
from gtjax.strategies import PADDING, MeshShape
from gtjax.strategies.numbering import number_nodes


@pytest.mark.parametrize("shape", [MeshShape(1, 1), MeshShape(4, 1), MeshShape(2, 3)])
def test_every_row_stands_where_the_numbering_says_and_padding_is_filled(shape):
    owner_n = np.random.default_rng(0).integers(0, shape.node, 29).astype(np.int32)
    numbering = number_nodes(Partition(owner_n, shape.node), multiple=shape.feature)
    source = np.arange(58.0).reshape(29, 2)
    placed = place_rows(make_mesh(shape), numbering.node_pr, source, fill=-7)
    assert len(placed.addressable_shards) == shape.devices
    assert {shard.data.shape for shard in placed.addressable_shards} == {
        (numbering.rows // shape.feature, 2)
    }
    flat = numbering.node_pr.reshape(-1)
    np.testing.assert_array_equal(np.asarray(placed)[flat == PADDING], -7)
    np.testing.assert_array_equal(np.asarray(placed)[numbering.position_n], source)


def test_a_graph_without_nodes_of_a_kind_is_placed_too():
    placed = place_rows(make_mesh(MeshShape(2)), np.full((2, 3), PADDING), np.zeros((0, 4)), 5)
    np.testing.assert_array_equal(placed, np.full((6, 4), 5.0))


def test_no_second_full_copy_is_made_on_the_host():
    nodes, shape = 200_000, MeshShape(8)
    source = np.ones((nodes, 32), np.float32)
    owner_n = np.random.default_rng(0).integers(0, 8, nodes).astype(np.int32)
    numbering = number_nodes(Partition(owner_n, 8))
    place_rows(make_mesh(shape), numbering.node_pr[:, :8], source)  # what is made once for all
    gc.collect()
    tracemalloc.start()
    try:
        placed = place_rows(make_mesh(shape), numbering.node_pr, source, change=lambda x: x * 2)
        placed.block_until_ready()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A few shards, of an eighth each; five were seen where other tests had run in this process.
    assert peak < 0.75 * source.nbytes


def test_parts_go_to_their_devices_and_are_shared_along_the_feature_axis():
    placed = place_parts(make_mesh(MeshShape(2, 2)), {"a": np.arange(6).reshape(2, 3)})["a"]
    shards = {shard.device.id: np.asarray(shard.data) for shard in placed.addressable_shards}
    assert len(shards) == 4
    assert sorted(shard[0, 0] for shard in shards.values()) == [0, 0, 3, 3]

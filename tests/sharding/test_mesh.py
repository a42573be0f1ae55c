"""From what the user asks for to a strategy and a mesh."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gtjax.graph import UserError
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import Spread, chosen_strategy, parse_mesh, spread
from gtjax.strategies import STRATEGIES, MeshShape, ModelShape, NodeByFeature
from gtjax.strategies.node_halo import NodeHalo
from pallas_kernels.segment_attention import BACKENDS

MODEL = ModelShape(layers=2, hidden=24, heads=6)


@pytest.mark.parametrize(
    ("asked", "strategy", "shape"),
    [
        ({}, "single", MeshShape()),
        ({"devices": 1}, "single", MeshShape()),
        ({"devices": 5}, "node_halo", MeshShape(5)),
        ({"strategy": "node_ring", "devices": 3}, "node_ring", MeshShape(3)),
        ({"strategy": "feature_all_to_all", "devices": 6}, "feature_all_to_all", MeshShape(1, 6)),
        ({"strategy": "node_by_feature", "devices": 8}, "node_by_feature", MeshShape(4, 2)),
        ({"strategy": "node_by_feature", "mesh": "feature=3"}, "node_by_feature", MeshShape(1, 3)),
        ({"mesh": "node=2"}, "node_halo", MeshShape(2)),
    ],
)
def test_defaults_that_work(asked, strategy, shape):
    got = spread(ParallelConfig(**asked), MODEL)
    assert (got.strategy.name, got.shape) == (strategy, shape)
    assert dict(got.mesh.shape) == {"node": shape.node, "feature": shape.feature}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"strategy": "feature_all_to_all", "devices": 4}, "6 heads do not divide over 4 devices"),
        ({"strategy": "node_by_feature", "mesh": "node=2,feature=4"}, "6 heads do not divide"),
        ({"strategy": "node_halo", "mesh": "node=2,feature=2"}, "feature=2. Use node_by_feature"),
        ({"strategy": "single", "devices": 2}, "single runs on one device"),
        ({"devices": 99}, "99 devices are asked for, and there are 8"),
        ({"devices": 3, "mesh": "node=2"}, "has 2 devices; --devices is 3"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(asked, words):
    with pytest.raises(UserError, match=words):
        spread(ParallelConfig(**asked), MODEL)


@pytest.mark.parametrize(
    "text", ["", "4", "node", "node=", "node=0", "node=-1", "node=2,node=2", "rows=2"]
)
def test_a_mesh_that_cannot_be_read_is_refused_with_an_example(text):
    with pytest.raises(UserError, match='such as "node=4,feature=2"'):
        parse_mesh(text)


def test_every_name_that_users_may_write_is_a_strategy_and_the_other_way_round():
    names = ParallelConfig.__dataclass_fields__["strategy"].type
    for name in STRATEGIES:
        assert f'"{name}"' in names.replace("'", '"')
        assert STRATEGIES[name].name == name


def test_halos_travel_as_asked():
    assert chosen_strategy(ParallelConfig("node_halo"), 2) == NodeHalo(exchange="rounds")
    ragged = ParallelConfig("node_halo", exchange="ragged")
    assert chosen_strategy(ragged, 2) == NodeHalo(exchange="ragged")
    both = chosen_strategy(ParallelConfig("node_by_feature", exchange="ragged"), 4)
    assert isinstance(both, NodeByFeature)
    assert both.inner == NodeHalo(exchange="ragged")


def test_a_ragged_exchange_is_refused_on_a_cpu():
    config = ParallelConfig("node_halo", devices=2, exchange="ragged")
    with pytest.raises(UserError, match=r"runs on TPUs and GPUs; this is a CPU. Use rounds"):
        spread(config, ModelShape(layers=1, hidden=8, heads=2))


@pytest.mark.parametrize(("found", "platform"), [("tpu", "tpu"), ("cuda", "gpu"), ("rocm", "gpu")])
def test_the_kernel_is_that_of_the_devices_and_not_of_this_machine(found, platform):
    mesh = SimpleNamespace(devices=np.array([[SimpleNamespace(platform=found)]]))
    there = Spread(STRATEGIES["single"], MeshShape(), mesh)  # pyright: ignore
    assert there.platform == platform
    assert there.backend("xla") is BACKENDS["xla"]
    with pytest.raises(ValueError, match=r"runs on cpu"):
        there.backend("cpu")

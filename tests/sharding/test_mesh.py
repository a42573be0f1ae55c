"""From what the user asks for to a strategy and a mesh."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.mesh import (
    Spread,
    chosen_strategy,
    parse_mesh,
    simulate_devices,
    spread,
)
from gtjax.strategies import STRATEGIES, MeshShape, NodeByFeature, op_work
from gtjax.strategies.node_halo import NodeHalo
from pallas_kernels import DOT_PRODUCT

ROWS = jax.ShapeDtypeStruct((7, 6, 4), np.float32)
WORKS = [op_work(DOT_PRODUCT, ROWS, (ROWS, ROWS), None, None)]


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
    got = spread(ParallelConfig(**asked), WORKS)
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
        spread(ParallelConfig(**asked), WORKS)


@pytest.mark.parametrize(
    "text", ["", "4", "node", "node=", "node=0", "node=-1", "node=2,node=2", "rows=2"]
)
def test_a_mesh_that_cannot_be_read_is_refused_with_an_example(text):
    with pytest.raises(UserError, match='such as "node=4,feature=2"'):
        parse_mesh(text)


def test_a_strategy_that_is_none_is_refused_with_the_nearest():
    assert all(strategy.name == name for name, strategy in STRATEGIES.items())
    with pytest.raises(UserError, match="Did you mean 'node_halo'"):
        spread(ParallelConfig(strategy="node_hallo"), WORKS)


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
        spread(config, WORKS)


@pytest.mark.parametrize(("found", "platform"), [("tpu", "tpu"), ("cuda", "gpu"), ("rocm", "gpu")])
def test_the_kernel_is_that_of_the_devices_and_not_of_this_machine(found, platform):
    mesh = SimpleNamespace(devices=np.array([[SimpleNamespace(platform=found)]]))
    there = Spread(STRATEGIES["single"], MeshShape(), mesh)  # pyright: ignore
    assert there.platform == platform
    assert DOT_PRODUCT.kernel("xla", platform).name == "xla"
    with pytest.raises(ValueError, match=r"runs on cpu"):
        DOT_PRODUCT.kernel("cpu", platform)


@pytest.mark.parametrize("asked", [{"devices": 500}, {"mesh": "node=250,feature=2"}])
def test_too_many_simulated_devices_are_refused_at_once(monkeypatch, asked):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    simulated = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: simulated.append(value))
    with pytest.raises(UserError, match=r"at most 64 devices on a CPU; found 500\. .*--hardware"):
        simulate_devices(ParallelConfig(**asked))
    assert not simulated
    simulate_devices(ParallelConfig(devices=64))
    assert simulated == [64]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_NUM_CPU_DEVICES", "500"),
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=500"),
    ],
)
def test_whoever_tells_jax_himself_may_simulate_any_number(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    simulated = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: simulated.append(value))
    simulate_devices(ParallelConfig(devices=500))
    assert simulated == [500]

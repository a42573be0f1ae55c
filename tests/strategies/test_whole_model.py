"""Loss, gradients and metrics of a whole model, however it is spread: those of one device."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from gtjax.graph import Graph
from gtjax.nn import ModelConfig
from gtjax.sharding.config import ParallelConfig
from gtjax.training.config import TrainConfig
from gtjax.training.prepare import in_graph_order, make_batch
from gtjax.training.step import Program
from gtjax.training.task import Task

NODES = 61  # prime, so that there is padding on every number of devices
EVERYTHING = {
    "norm": "batch",
    "global_attention": True,
    "label_input": True,
    "positional": "random_walk",
    "positional_size": 4,
    "dropout": 0.3,
    "input_dropout": 0.1,
    "attention_dropout": 0.2,
}
SPREADS = {
    "node_all_gather": ["node=3", "node=8"],
    "node_halo": ["node=3", "node=8"],
    "node_ring": ["node=3", "node=8"],
    "feature_all_to_all": ["feature=2", "feature=4"],
    "node_by_feature": ["node=2,feature=2", "node=2,feature=4"],
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    rng = np.random.default_rng(5)
    splits = rng.integers(0, 3, NODES)
    return Graph(
        rng.integers(0, NODES, 400),
        np.where(rng.random(400) < 0.3, 7, rng.integers(0, NODES, 400)),  # and a hub
        rng.standard_normal((NODES, 5)).astype(np.float32),
        rng.integers(0, 2, NODES),
        {name: splits == number for number, name in enumerate(("train", "val", "test"))},
        rng.standard_normal((400, 3)).astype(np.float32),
    )


def outcome(graph, parallel, **model):
    """Loss, gradients by parameter, metrics, and probabilities in the graph's order."""
    shape = {"hidden": 16, "heads": 4, "layers": 2, **model}
    config = TrainConfig(model=ModelConfig(**shape), parallel=parallel)
    program = Program(config, graph, Task.of(graph))
    batch, state = make_batch(graph, config, program.spread), program.initial_state()
    loss, grads = jax.jit(jax.value_and_grad(program.loss))(state.params, batch, state.step)
    outputs, metrics = jax.jit(program.predict)(state.params, batch)
    logits = in_graph_order(batch, np.asarray(outputs.logits_nc))
    return {"loss": loss, "gradients": grads, "metrics": metrics, "logits": logits}


def assert_same(got, want):
    jax.tree.map_with_path(
        lambda path, a, b: np.testing.assert_allclose(
            a, b, rtol=2e-5, atol=2e-5, err_msg=jax.tree_util.keystr(path)
        ),
        got,
        want,
    )


@pytest.mark.parametrize("architecture", ["transformer", "decoupled"])
@pytest.mark.parametrize("strategy", SPREADS)
def test_everything_at_once_is_the_same_on_many_devices(graph, strategy, architecture):
    want = outcome(graph, ParallelConfig(), architecture=architecture, **EVERYTHING)
    for mesh in SPREADS[strategy]:
        parallel = ParallelConfig(strategy=strategy, mesh=mesh, partitioner="random")
        assert_same(outcome(graph, parallel, architecture=architecture, **EVERYTHING), want)


@pytest.mark.parametrize("inner", ["node_all_gather", "node_ring"])
def test_two_dimensions_take_any_node_strategy(graph, inner):
    parallel = ParallelConfig(strategy="node_by_feature", mesh="node=2,feature=2", inner=inner)
    assert_same(outcome(graph, parallel), outcome(graph, ParallelConfig()))


@pytest.mark.parametrize("partitioner", ["contiguous", "random", "metis", "streaming"])
def test_any_partition_gives_the_same(graph, partitioner):
    parallel = ParallelConfig(strategy="node_halo", devices=4, partitioner=partitioner)
    assert_same(outcome(graph, parallel), outcome(graph, ParallelConfig()))


def test_a_graph_without_edges_or_with_fewer_nodes_than_devices(graph):
    few = np.arange(NODES) < 3
    small = Graph(
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        graph.x_nf[few],
        np.array([0, 1, 1]),
        {"train": np.array([1, 0, 0], bool), "val": np.array([0, 1, 1], bool)},
    )
    for strategy in ("node_halo", "node_ring", "node_all_gather"):
        parallel = ParallelConfig(strategy=strategy, devices=8)
        assert_same(outcome(small, parallel), outcome(small, ParallelConfig()))

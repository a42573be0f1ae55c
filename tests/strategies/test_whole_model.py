"""Loss, gradients and metrics of a whole model, however it is spread: those of one device."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from gtjax.batching.prepare import in_graph_order, make_batch
from gtjax.graph import Graph
from gtjax.nn.config import (
    DecoupledConfig,
    GATConfig,
    GATv2Config,
    GCNConfig,
    GINConfig,
    GPSConfig,
    GRANDConfig,
    PolynormerConfig,
    RelationalConfig,
    SAGEConfig,
    SGFormerConfig,
    TransformerConfig,
)
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from tests.marks import in_turn, slow

NODES = 61  # prime, so that there is padding on every number of devices
EVERYTHING = {
    "norm": "batch",
    "label_input": True,
    "positional": "random_walk",
    "positional_size": 4,
    "dropout": 0.3,
    "input_dropout": 0.1,
    "attention_dropout": 0.2,
}
GLOBAL = {"global_attention": True}
PLAIN = TransformerConfig(hidden=16, heads=4, layers=2)
FOUR = {
    "node_all_gather": "node=4",
    "node_halo": "node=4",
    "node_ring": "node=4",
    "feature_all_to_all": "feature=4",
    "node_by_feature": "node=2,feature=2",
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


CONFIGS = {
    "transformer": TransformerConfig(16, 1, 4, drop_layers=0.2, **EVERYTHING, **GLOBAL),
    "decoupled": DecoupledConfig(hidden=16, heads=4, layers=2, **EVERYTHING),
}


def program_of(graph, parallel, model, **more):
    config = TrainConfig(model=model, parallel=parallel, **more)
    program = Program(config, graph, config.task_of(graph))
    return program, make_batch(graph, program.settings, program.spread), program.initial_state()


def outcome(graph, parallel, model=PLAIN):
    """Loss, gradients by parameter, metrics, and outputs in the graph's order."""
    program, batch, state = program_of(graph, parallel, model)
    loss, grads = jax.jit(jax.value_and_grad(program.loss))(state.params, batch, state.step)
    outputs, metrics = jax.jit(program.predict)(state.params, batch)
    logits = in_graph_order(batch, np.asarray(outputs.outputs))
    return {"loss": loss, "gradients": grads, "metrics": metrics, "logits": logits}


def losses(graph, parallel, model):
    """Of ten steps."""
    program, batch, state = program_of(graph, parallel, model, steps=10)
    return np.asarray(program.compiled(state, batch, 10)(state, batch, np.int32(10))[1])


@pytest.fixture(scope="module")
def on_one(graph):
    """What there is to compare with: one device, asked once."""
    return functools.cache(lambda ask, model: ask(graph, ParallelConfig(), model))


def assert_same(got, want):
    jax.tree.map_with_path(
        lambda path, a, b: np.testing.assert_allclose(
            a, b, rtol=2e-5, atol=2e-5, err_msg=jax.tree_util.keystr(path)
        ),
        got,
        want,
    )


@pytest.mark.parametrize(
    ("name", "strategy", "mesh"),
    [
        pytest.param(name, *spread, id=f"{name}-{spread}", marks=() if quick else pytest.mark.slow)
        for name, spread, quick in in_turn(
            list(CONFIGS), [(strategy, mesh) for mesh in (0, 1) for strategy in SPREADS], every=2
        )
    ],
)
@pytest.mark.quick_every(4)
def test_everything_at_once_is_the_same_on_many_devices(graph, on_one, name, strategy, mesh):
    spread = {"strategy": strategy, "mesh": SPREADS[strategy][mesh]}
    parallel = ParallelConfig(**spread, partitioner="random")
    assert_same(outcome(graph, parallel, CONFIGS[name]), on_one(outcome, CONFIGS[name]))


OTHERS = [
    GCNConfig(hidden=16, layers=2, norm="batch", residual=True, drop_layers=0.5),
    SAGEConfig(hidden=16, layers=2, aggregation="max"),
    GINConfig(hidden=16, layers=2),
    GATConfig(hidden=16, layers=2, heads=4, attention_dropout=0.2),
    GATv2Config(hidden=16, layers=2, heads=4, attention_dropout=0.2),
    # Steps that overshoot grow what rounding differs by, so dropout is small.
    PolynormerConfig(16, 2, 2, 4, dropout=0.1, global_dropout=0.1),
    SGFormerConfig(hidden=16, layers=2, heads=2),
    GPSConfig(hidden=16, layers=2, heads=4, local="gat", norm="layer", dropout=0.1),
    RelationalConfig(hidden=16, layers=2, heads=4, attention_dropout=0.2),
    GRANDConfig(hidden=4, layers=3, norm="batch"),
]


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        pytest.param(
            strategy,
            model,
            id=f"{type(model).__name__}-{strategy}",
            marks=() if quick else pytest.mark.slow,
        )
        for strategy, model, quick in in_turn(list(FOUR), OTHERS)
    ],
)
@pytest.mark.quick_every(6)
def test_losses_of_ten_steps_are_the_same_on_four_devices(graph, on_one, model, strategy):
    want = on_one(losses, model)
    assert np.isfinite(want).all()
    assert want[-1] != want[0]  # it does train
    parallel = ParallelConfig(strategy=strategy, mesh=FOUR[strategy], partitioner="random")
    np.testing.assert_allclose(losses(graph, parallel, model), want, rtol=2e-5)


@pytest.mark.parametrize("inner", ["node_all_gather", slow("node_ring")])
@pytest.mark.slow
def test_two_dimensions_take_any_node_strategy(graph, on_one, inner):
    parallel = ParallelConfig(strategy="node_by_feature", mesh="node=2,feature=2", inner=inner)
    assert_same(outcome(graph, parallel), on_one(outcome, PLAIN))


@pytest.mark.parametrize(
    "partitioner", [*map(slow, ("contiguous", "random", "metis")), "streaming"]
)
def test_any_partition_gives_the_same(graph, on_one, partitioner):
    parallel = ParallelConfig(strategy="node_halo", devices=4, partitioner=partitioner)
    assert_same(outcome(graph, parallel), on_one(outcome, PLAIN))


@pytest.mark.slow
def test_a_graph_without_edges_or_with_fewer_nodes_than_devices(graph):
    few = np.arange(NODES) < 3
    small = Graph(
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
        graph.x_nf[few],
        np.array([0, 1, 1]),
        {"train": np.array([1, 0, 0], bool), "val": np.array([0, 1, 1], bool)},
    )
    model = replace(PLAIN, layers=1)
    want = outcome(small, ParallelConfig(), model)
    for strategy in ("node_halo", "node_ring", "node_all_gather"):
        assert_same(outcome(small, ParallelConfig(strategy=strategy, devices=8), model), want)

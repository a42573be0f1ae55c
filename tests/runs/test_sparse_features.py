"""Sparse features give what the same features as an array give: losses, predictions, resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig, PrepareConfig
from gtjax.batching.prepare import (
    abstract_batch,
    make_batch,
    open_batch,
    place_batch,
    prepare,
    store_batch,
    whole_layout,
)
from gtjax.core.errors import UserError
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
from gtjax.partition import EvenCut
from gtjax.planner import memory_of
from gtjax.recipes.config import RecipeConfig
from gtjax.runs.abstract_step import work_of
from gtjax.runs.config import TrainConfig
from gtjax.runs.loop import fit, resume
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.step_cost import step_cost
from gtjax.runs.trained import TrainedRun
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.sparse import SpreadRows
from gtjax.strategies import STRATEGIES, MeshShape
from tests.marks import slow
from tests.runs.test_resume import start_and_stop

NODES, WORDS, STEPS = 61, 131, 10  # prime, so that there is padding
SHAPE: dict[str, Any] = {"hidden": 8, "dropout": 0.2, "input_dropout": 0.5}
MODELS = {
    "gcn": GCNConfig(**SHAPE, layers=2, input_layer=True),
    "sage": SAGEConfig(**SHAPE, layers=2, residual=True),
    "gat": GATConfig(**SHAPE, layers=2, heads=2),
    "gatv2": GATv2Config(**SHAPE, layers=1, heads=2),
    "gin": GINConfig(**SHAPE, layers=2, norm="layer"),
    "wide gin": GINConfig(**(SHAPE | {"hidden": 160}), layers=1, norm="layer"),
    "wide sage": SAGEConfig(**(SHAPE | {"hidden": 160}), layers=1),
    "transformer": TransformerConfig(**SHAPE, layers=1, heads=2, label_input=True),
    "decoupled": DecoupledConfig(**SHAPE, layers=2, heads=2),
    "polynormer": PolynormerConfig(**SHAPE, layers=1, heads=2),
    "sgformer": SGFormerConfig(**SHAPE, layers=1),
    "gps": GPSConfig(**SHAPE, layers=1, heads=2),
    "relational": RelationalConfig(**SHAPE, layers=1, heads=2),
    "grand": GRANDConfig(**(SHAPE | {"input_dropout": 0.0}), layers=2),
    "gcn with labels": GCNConfig(
        **SHAPE, layers=1, label_input=True, positional="random_walk", positional_size=3
    ),
}


def bags_of_words(seed: int = 5, words: int = WORDS, filled: float = 0.05) -> Graph:
    """Bags of words, some of them empty, on a graph with a hub."""
    rng = np.random.default_rng(seed)
    x_nf = rng.integers(1, 4, (NODES, words)) * (rng.random((NODES, words)) < filled)
    x_nf[::9] = 0
    splits = rng.integers(0, 3, NODES)
    return Graph(
        rng.integers(0, NODES, 300),
        np.where(rng.random(300) < 0.2, 7, rng.integers(0, NODES, 300)),
        x_nf.astype(np.float32),
        rng.integers(0, 3, NODES),
        {name: splits == number for number, name in enumerate(("train", "val", "test"))},
    )


GRAPH = bags_of_words()


def config_of(model: Any, sparse: Any, parallel: ParallelConfig | None = None) -> TrainConfig:
    parallel = parallel or ParallelConfig(strategy="single")
    config = TrainConfig(model=model, parallel=parallel, steps=STEPS, optim=OPTIM)
    return replace(config, prepare=PrepareConfig(sparse=sparse))


OPTIM = replace(TrainConfig().optim, learning_rate=0.02, warmup=0)


def losses(config: TrainConfig) -> np.ndarray:
    program = Program(config, GRAPH, config.task_of(GRAPH))
    batch = make_batch(GRAPH, program.settings, program.spread)
    assert isinstance(batch.inputs.x_nf, SpreadRows) == (config.prepare.sparse != "never")
    state = program.initial_state()
    return np.asarray(program.compiled(state, batch, STEPS)(state, batch, np.int32(STEPS))[1])


QUICK = ("sage", "gcn with labels")
FOUR = {
    "node_halo": "node=4",
    "node_ring": "node=4",
    "feature_all_to_all": "feature=4",
    "node_by_feature": "node=2,feature=2",
}


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in MODELS])
def test_losses_are_those_of_dense_features(name):
    sparse, dense = (losses(config_of(MODELS[name], how)) for how in ("auto", "never"))
    assert np.isfinite(dense).all()
    assert dense[-1] != dense[0]
    np.testing.assert_allclose(sparse, dense, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("gat", "node_halo"),
        slow("sage", "node_ring"),
        slow("gin", "feature_all_to_all"),
        slow("sgformer", "node_by_feature"),
        *(slow(name, "node_halo") for name in ("gcn", "transformer", "polynormer", "decoupled")),
    ],
)
def test_losses_on_four_devices_are_those_of_dense_features_on_one(name, strategy):
    model = replace(MODELS[name], **({"heads": 4} if hasattr(MODELS[name], "heads") else {}))
    four = ParallelConfig(strategy=strategy, mesh=FOUR[strategy], partitioner="contiguous")
    dense = losses(config_of(model, "never"))
    np.testing.assert_allclose(losses(config_of(model, "auto", four)), dense, rtol=2e-5, atol=2e-5)


def test_a_step_holds_the_values_and_not_the_zeros():
    wide, model = bags_of_words(words=20_011, filled=0.002), GCNConfig(hidden=1, layers=1)
    sparse, dense = (step_cost(wide, config_of(model, how)).peak_bytes for how in ("auto", "never"))
    zeros = wide.x_nf.nbytes - 20 * np.count_nonzero(wide.x_nf)
    assert dense - sparse > 0.9 * zeros


def test_a_plan_counts_the_values_and_not_the_zeros():
    model = SAGEConfig(hidden=8, layers=1, residual=True)
    sparse, dense = (work_of(config_of(model, how), GRAPH) for how in ("auto", "never"))
    values = round(np.count_nonzero(GRAPH.x_nf) / NODES)
    products = 2 + 2  # of three matrices two are added up, since they read the same rows
    assert sparse.gathered.node == values * 4 * 8 * products
    assert dense.gathered.node == 0
    assert sorted(sparse.sums) == sorted(dense.sums)  # gradients are as large
    # Without dropout nobody reads which node a value is of, but all else: 20 bytes, 8 for offsets.
    assert sparse.inputs.node - dense.inputs.node == 20 * values + 8 - 4 * WORDS
    few, many = (sum(flops.node for _, flops in work.products) for work in (sparse, dense))
    assert many - few == 2 * WORDS * 8 * products


@pytest.mark.parametrize("devices", [1, slow(4)])
def test_a_plan_knows_the_memory_of_a_step(devices):
    parallel = ParallelConfig(strategy="single" if devices == 1 else "node_halo", devices=devices)
    wide, model = bags_of_words(words=2003, filled=0.02), SAGEConfig(hidden=16, layers=1)
    config = config_of(model, "auto", parallel)
    cost, work = step_cost(wide, config), work_of(config, wide)
    summed = cost.demanded_bytes.get("all-reduce", 0)
    assert cost.received_bytes.get("all-reduce", 0) == pytest.approx(summed, rel=0.05)
    cut = EvenCut(devices, NODES, 700 + NODES, 0.5, 0.5)
    needed = memory_of(STRATEGIES[cost.strategy], cut, work, MeshShape(devices), "cpu", "auto").peak
    assert cost.peak_bytes == pytest.approx(needed, rel=0.25)


def test_a_stored_batch_holds_the_same(tmp_path):
    config = config_of(MODELS["gcn"], "auto", ParallelConfig(strategy="node_halo", devices=3))
    program = Program(config, GRAPH, config.task_of(GRAPH))
    host = prepare(GRAPH, program.settings)
    layout, _ = whole_layout(host, program.settings, program.spread)
    store_batch(tmp_path / "stored", host, layout, program.spread, about={})
    placed = place_batch(host, layout, program.spread)
    assert isinstance(placed.inputs.x_nf, SpreadRows)
    opened = open_batch(tmp_path / "stored", program.spread)
    jax.tree.map(np.testing.assert_array_equal, opened, placed)
    shapes = abstract_batch(host, layout, program.spread)
    assert jax.tree.map(np.shape, shapes) == jax.tree.map(np.shape, placed)


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_predicts_on_another_graph(tmp_path, monkeypatch):
    quick = replace(config_of(MODELS["sage"], "auto"), steps=4, eval_every=2)
    whole = fit(GRAPH, config=replace(quick, out=tmp_path / "whole"), show_progress=False)
    start_and_stop(monkeypatch, GRAPH, replace(quick, out=tmp_path / "run"), 3)
    folder, config = RunFolder.open(tmp_path / "run")
    resumed = resume(folder, config, GRAPH, show_progress=False)
    assert resumed["began_at"] > 0
    assert resumed["losses"] == whole["losses"]
    other = bags_of_words(seed=6)
    sparse, dense = (
        TrainedRun(folder, replace(config, prepare=PrepareConfig(sparse=how))).predict(other)
        for how in ("auto", "never")
    )
    np.testing.assert_allclose(sparse.answers_nc, dense.answers_nc, rtol=2e-5, atol=2e-6)


def test_what_moves_features_gets_an_array():
    recipe = RecipeConfig(flag_steps=2)
    config = replace(config_of(MODELS["gcn"], "auto"), recipe=recipe)
    program = Program(config, GRAPH, config.task_of(GRAPH))
    assert program.settings.sparse_forms is None


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"recipe": RecipeConfig(flag_steps=2)}, "reads them as an array"),
        ({"model": SAGEConfig(aggregation="max")}, "reads them as an array"),
        ({"batches": BatchesConfig("clusters")}, "--batching full alone"),
        ({"prepare": PrepareConfig(sparse="always", features="standard")}, "zero mean"),
    ],
)
def test_what_cannot_be_sparse_is_refused_with_advice(changes, rule):
    config = replace(config_of(MODELS["gcn"], "always"), **changes)
    program = Program(config, GRAPH, config.task_of(GRAPH))
    with pytest.raises(UserError, match=f"{rule}.*auto"):
        make_batch(GRAPH, program.settings, program.spread)

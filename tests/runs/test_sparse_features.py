"""Sparse features give what the same features as an array give: losses, predictions, resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig, PrepareConfig
from gtjax.batching.prepare import make_batch
from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.nn.config import (
    DecoupledConfig,
    GATConfig,
    GATv2Config,
    GCNConfig,
    GINConfig,
    GRANDConfig,
    PolynormerConfig,
    SAGEConfig,
    SGFormerConfig,
    TransformerConfig,
)
from gtjax.recipes.config import RecipeConfig
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from gtjax.sharding.sparse import SpreadRows
from tests.marks import slow

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
    "grand": GRANDConfig(**(SHAPE | {"input_dropout": 0.0}), layers=2),
    "gcn with labels": GCNConfig(
        **SHAPE, layers=1, label_input=True, positional="random_walk", positional_size=3
    ),
}


def bags_of_words(seed: int = 5) -> Graph:
    """Bags of words, some of them empty, on a graph with a hub."""
    rng = np.random.default_rng(seed)
    x_nf = rng.integers(1, 4, (NODES, WORDS)) * (rng.random((NODES, WORDS)) < 0.05)
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


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in MODELS])
def test_losses_are_those_of_dense_features(name):
    sparse, dense = (losses(config_of(MODELS[name], how)) for how in ("auto", "never"))
    assert np.isfinite(dense).all()
    assert dense[-1] != dense[0]
    np.testing.assert_allclose(sparse, dense, rtol=2e-5, atol=2e-5)


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

"""What is counted of a model is what the model has."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from gtjax.graph import GENERATORS
from gtjax.nn import ModelConfig
from gtjax.training.config import OptimConfig, TrainConfig
from gtjax.training.planning import Sizes, model_work
from gtjax.training.step import Program
from gtjax.training.task import Task

GRAPH = GENERATORS["synthetic-citation"](nodes=40, features=7, classes=3)
WITH_EDGES = dataclasses.replace(
    GRAPH, edge_x_ef=np.ones((GRAPH.num_edges, 5), np.float32), name="with edges"
)
MODELS = [
    ModelConfig(hidden=8, heads=2, layers=2),
    ModelConfig(hidden=8, heads=4, layers=3, feed_forward=0, norm="rms"),
    ModelConfig(hidden=8, heads=2, layers=1, norm="batch", global_attention=True),
    ModelConfig(hidden=8, heads=2, layers=2, norm="none", positional="random_walk"),
    ModelConfig(hidden=8, heads=2, layers=2, label_input=True, feed_forward=1.5),
    ModelConfig(hidden=8, heads=2, layers=4, architecture="decoupled"),
]


@pytest.mark.parametrize("graph", [GRAPH, WITH_EDGES], ids=lambda graph: graph.name)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_parameters_and_state_are_those_of_the_program(graph, model, average):
    config = TrainConfig(model=model, optim=OptimConfig(average=average))
    state = Program(config, graph, Task.of(graph)).abstract_state()
    work = model_work(config, graph)
    assert work.parameters == sum(x.size for x in jax.tree.leaves(state.params))
    whole = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert work.state_bytes == pytest.approx(whole, abs=64)  # some counters


def test_numbers_alone_give_the_same_work():
    config = TrainConfig(model=MODELS[0])
    sizes = Sizes(40, 100, GRAPH.num_features, GRAPH.num_classes)
    assert model_work(config, sizes) == model_work(config, GRAPH)

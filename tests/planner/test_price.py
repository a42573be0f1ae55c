"""Predicted bytes and memory against those of compiled steps."""

from __future__ import annotations

import dataclasses

import pytest

from gtjax.graph import GENERATORS
from gtjax.nn import ModelConfig
from gtjax.partition import partition_graph
from gtjax.planner import options, price
from gtjax.sharding.config import ParallelConfig
from gtjax.training.config import TrainConfig
from gtjax.training.planning import model_work, with_option
from gtjax.training.prepare import prepare_graph
from gtjax.training.step_cost import step_cost
from tests.planner.profiles import profile

GRAPHS = {
    "well cut": GENERATORS["grid"](rows=53, columns=61),
    "power law": GENERATORS["rmat"](nodes=4001, edges=30_000),
}
MODEL = ModelConfig(hidden=32, heads=4, layers=2, dropout=0.3)
OPTIONS = [
    option
    for devices in (1, 4)
    for option in options(devices, ("contiguous",), ("elementwise",))
    if option.inner != "node_ring"
]


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize(
    "option", OPTIONS, ids=lambda o: f"{o.name}-{o.mesh.node}-{o.mesh.feature}"
)
def test_bytes_and_memory_are_those_of_the_compiled_step(graph, option):
    _check(graph, option, MODEL)


@pytest.mark.parametrize(
    "option",
    [o for o in options(4, ("contiguous",), ("block",)) if o.inner is None],
    ids=lambda o: o.name,
)
def test_recomputed_blocks_fetch_once_more(option):
    _check(GRAPHS["power law"], option, MODEL)


@pytest.mark.parametrize("remat", ["none", "block"])
def test_memory_of_every_rematerialisation(remat):
    (option,) = options(1, ("contiguous",), (remat,))
    _check(GRAPHS["power law"], option, dataclasses.replace(MODEL, layers=4))


def _check(graph, option, model):
    config = with_option(TrainConfig(model=model, parallel=ParallelConfig()), option)
    cost = step_cost(graph, config)
    edges = prepare_graph(graph, config.prepare)
    cut = partition_graph(edges, option.mesh.node, "contiguous").cut(edges)
    work = model_work(config, graph)
    found = price(option.strategy, cut, work, option.mesh, profile(), option.remat)
    if option.mesh.devices > 1:
        received = sum(cost.received_bytes.values())
        assert found.moved_bytes == pytest.approx(received, rel=0.02)
    assert 0.85 * cost.peak_bytes < found.peak_bytes < 1.35 * cost.peak_bytes

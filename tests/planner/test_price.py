"""Predicted bytes and memory against those of compiled steps, of models never seen before."""

from __future__ import annotations

import pytest

from gtjax.graph import GENERATORS
from gtjax.partition import CutStats, partition_graph
from gtjax.planner import Amount, OpCall, memory_of, options, price
from gtjax.planner.price import transfers_of
from gtjax.sharding.collectives import bytes_received
from gtjax.strategies import STRATEGIES, MeshShape
from tests.planner.profiles import profile
from tests.planner.tiny_models import CLASSES, FEATURES, MODELS, Step
from tests.strategies.on_devices import OnDevices

GRAPH = GENERATORS["uniform"](nodes=16_001, edges=128_000, features=FEATURES, classes=CLASSES)
WORKS = {name: Step(make).work() for name, make in MODELS.items()}
OPTIONS = {
    f"{option.name}-{option.mesh.node}-{option.mesh.feature}": option
    for option in options(4, ("contiguous",), ("none",))
    if option.inner in (None, "node_halo")
}
# Every strategy with the fused kernel; of ops in XLA, which take long to compile, some.
CASES = [("attending", name) for name in OPTIONS]
CASES += [("sums", "node_halo-4-1"), ("sums", "feature_all_to_all-1-4"), ("sums", "node_ring-4-1")]
CASES += [("additive", "node_all_gather-4-1"), ("gated", "node_halo-4-1")]
CASES += [("twice", "node_all_gather-4-1"), ("twice", "node_halo-4-1")]


@pytest.mark.parametrize(("model", "name"), CASES)
@pytest.mark.quick_every(6)
def test_bytes_and_memory_are_those_of_the_compiled_step(model, name):
    option, work = OPTIONS[name], WORKS[model]
    partition = partition_graph(GRAPH, option.mesh.node, "contiguous")
    on = OnDevices(GRAPH, option.strategy, option.mesh, partition)
    compiled = Step(MODELS[model]).compiled(GRAPH, on)
    cut = partition.cut(GRAPH)
    moved = transfers_of(option.strategy, cut, work, option.mesh)
    received = sum(bytes_received(compiled.as_text(), 4).values())
    assert sum(each.bytes * each.count for each in moved) == pytest.approx(received, rel=0.02)
    found = compiled.memory_analysis()
    peak = found.argument_size_in_bytes + found.output_size_in_bytes
    peak += found.temp_size_in_bytes - found.alias_size_in_bytes
    predicted = memory_of(option.strategy, cut, work, option.mesh, "cpu").peak
    assert 0.85 * peak < predicted < 1.35 * peak


def test_the_heaviest_part_sets_the_time():
    even = CutStats([100, 100], [[900, 100], [100, 900]], [[0, 50], [50, 0]])
    skewed = CutStats([100, 100], [[1700, 100], [100, 100]], [[0, 50], [50, 0]])
    settings = (WORKS["attending"], MeshShape(2), profile())
    light, heavy = (price(STRATEGIES["node_halo"], c, *settings) for c in (even, skewed))
    assert heavy.ops > 1.3 * light.ops
    assert heavy.communication == light.communication


def test_amounts_are_of_rows_and_edges():
    assert Amount(2, 3, 5).of(10, 100) == 325
    assert (Amount(1, 1, 1) + Amount(1, 0, 2) - Amount(node=1)).times(2) == Amount(2, 2, 6)


def test_rounds_fetch_again_and_trade_once():
    from gtjax.planner.price import call_transfers

    (call,) = WORKS["attending"].calls
    cut = CutStats([100, 100], [[900, 100], [100, 900]], [[0, 50], [50, 0]])
    ten = OpCall(call.op, call.work, rounds=10)

    def moved(strategy, mesh):
        demand = STRATEGIES[strategy].demand(cut, call.work, mesh)
        once = OpCall(call.op, call.work)
        return [sum(t.bytes * t.count for t in call_transfers(c, demand)) for c in (once, ten)]

    one, many = moved("node_halo", MeshShape(2))
    assert many == 5.5 * one  # keys once, and values ten times
    one, many = moved("feature_all_to_all", MeshShape(1, 2))
    assert many == one

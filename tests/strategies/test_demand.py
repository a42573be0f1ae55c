"""What strategies say they move is what the compiled program moves."""

from __future__ import annotations

import jax
import pytest

from gtjax.graph import GENERATORS
from gtjax.partition import partition_graph
from gtjax.sharding.collectives import bytes_received
from gtjax.strategies import MeshShape, ModelShape
from tests.strategies.on_devices import OnDevices
from tests.strategies.test_exact import NODE_STRATEGIES, strategy_called, tables

MODEL = ModelShape(layers=1, hidden=32, heads=8, edge_bias=True)
CASES = [(name, MeshShape(parts)) for name in NODE_STRATEGIES for parts in (2, 4, 8)]
CASES += [("feature_all_to_all", MeshShape(1, size)) for size in (2, 4, 8)]
CASES += [
    (f"node_by_feature over {name}", shape)
    for name in NODE_STRATEGIES
    for shape in (MeshShape(1, 2), MeshShape(2, 2), MeshShape(4, 2), MeshShape(2, 4))
]


@pytest.fixture(scope="module")
def graph():
    return GENERATORS["rmat"](nodes=700, edges=5000, seed=3)


def compiled_text(here, graph):
    q, k, v, bias, dout = tables(graph)

    def loss(q, k, v, bias, dout):
        out = here.attention(q, k, v, bias)
        return (out * dout).sum(), out

    arguments = (*map(here.nodes, (q, k, v)), here.edges(bias), here.nodes(dout))
    run = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    return run.lower(*arguments).compile().as_text()


@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda x: str(x))
def test_bytes_in_the_program_are_those_demanded(graph, name, shape):
    strategy = strategy_called(name)
    partition = partition_graph(graph, shape.node, "random")
    here = OnDevices(graph, strategy, shape, partition, "auto")
    moved = bytes_received(compiled_text(here, graph), shape.devices)
    demanded = strategy.demand(partition.cut(graph), MODEL, shape).bytes_moved
    assert demanded  # or nothing was tested
    for kind, amount in demanded.items():
        assert moved[kind] == pytest.approx(amount, rel=0.02), kind
    rest = {kind: amount for kind, amount in moved.items() if kind not in demanded}
    assert sum(rest.values()) < 0.02 * sum(moved.values()), rest

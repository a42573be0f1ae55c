"""What strategies say they move is what the compiled program moves, for ops of every kind."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from gtjax.graph import GENERATORS
from gtjax.partition import partition_graph
from gtjax.sharding.collectives import bytes_received
from gtjax.strategies import MeshShape, op_work
from tests.kernels.op_cases import CASES
from tests.marks import in_turn
from tests.strategies.on_devices import OnDevices
from tests.strategies.test_exact import NODE_STRATEGIES, marked, strategy_called

SPREADS = [(name, MeshShape(parts)) for name in NODE_STRATEGIES for parts in (2, 8)]
SPREADS += [("feature_all_to_all", MeshShape(1, size)) for size in (2, 8)]
SPREADS += [
    (f"node_by_feature over {name}", shape)
    for name in NODE_STRATEGIES
    for shape in (MeshShape(1, 2), MeshShape(2, 4))
]


@pytest.fixture(scope="module")
def graph():
    return GENERATORS["rmat"](nodes=700, edges=5000, seed=3)


def compiled_text(here, graph, case):
    rows = case.rows(graph.num_nodes, graph.num_edges)
    dout = here.nodes(np.zeros(case.out_shape(graph.num_nodes), np.float32))
    placed = {
        "receiver": here.nodes(rows["receiver"]),
        "sender": here.nodes(rows["sender"]),
        "edge": here.edges(rows["edge"]),
        "shared": rows["shared"],
    }

    def loss(rows, dout):
        out = here.neighbours.apply(case.op, **rows)
        return (out * dout).sum(), out

    return jax.jit(jax.grad(loss, has_aux=True)).lower(placed, dout).compile().as_text()


@pytest.mark.parametrize(
    ("op", "name", "shape"),
    marked(in_turn(["dot_product, bias", "mean, one head", "custom sum"], SPREADS)),
)
@pytest.mark.quick_every(6)
def test_bytes_in_the_program_are_those_demanded(graph, op, name, shape):
    strategy, case = strategy_called(name), CASES[op]
    partition = partition_graph(graph, shape.node, "random")
    here = OnDevices(graph, strategy, shape, partition)
    moved = bytes_received(compiled_text(here, graph, case), shape.devices)
    rows = case.rows(graph.num_nodes, graph.num_edges)
    work = op_work(case.op, rows["receiver"], rows["sender"], rows["shared"], rows["edge"])
    demanded = strategy.demand(partition.cut(graph), work, shape).bytes_moved
    assert demanded  # or nothing was tested
    shared = sum(x.nbytes for x in jax.tree.leaves(rows["shared"]))
    for kind, amount in demanded.items():
        assert moved[kind] == pytest.approx(amount, rel=0.02), kind
    rest = {kind: amount for kind, amount in moved.items() if kind not in demanded}
    assert sum(rest.values()) <= 0.02 * sum(moved.values()) + 2 * shared, rest

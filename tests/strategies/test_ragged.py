"""Halos by `ragged_all_to_all`: exact, by an emulation of the collective that no CPU has."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.partition import Partition, partition_graph
from gtjax.strategies import MeshShape, NodeByFeature, op_work
from gtjax.strategies.base import NODE
from gtjax.strategies.node_halo import NodeHalo
from gtjax.strategies.ragged import plan_ragged
from tests.kernels.op_cases import CASES
from tests.strategies.on_devices import OnDevices, graph_of
from tests.strategies.test_exact import GRAPHS, assert_equals_reference

RAGGED = NodeHalo(exchange="ragged")


def emulated(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes):
    """The collective as its documentation has it, by gathering everything everywhere."""
    me = jax.lax.axis_index(NODE)
    operands, starts, sizes, targets = (
        jax.lax.all_gather(x, NODE) for x in (operand, input_offsets, send_sizes, output_offsets)
    )
    row = jnp.arange(len(output))
    for source in range(len(operands)):
        start, size, target = (x[source, me] for x in (starts, sizes, targets))
        here = (row >= target) & (row < target + size)
        moved = operands[source].at[start + row - target].get(mode="fill", fill_value=jnp.nan)
        output = jnp.where(here[:, None], moved, output)
    agreed = (recv_sizes == sizes[:, me]).all()
    return jnp.where(agreed, output, jnp.nan)


@pytest.fixture
def emulation(monkeypatch):
    monkeypatch.setattr("gtjax.strategies.ragged.ragged_all_to_all", emulated)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("strategy", "shape"),
    [*((RAGGED, MeshShape(parts)) for parts in (1, 2, 3, 8))]
    + [(NodeByFeature(inner=RAGGED), MeshShape(*sizes)) for sizes in ((2, 2), (3, 2))],
    ids=str,
)
def test_values_and_gradients_equal_the_dense_oracle(strategy, shape):
    graph = graph_of(*GRAPHS["all at once"])
    assert_equals_reference(
        "dot_product, bias", graph, strategy, shape, partition_graph(graph, shape.node, "random")
    )


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", [n for n in GRAPHS if n not in ("all at once", "hub of hubs")])
@pytest.mark.quick_every(6)
def test_awkward_graphs_over_four_devices(name):
    graph = graph_of(*GRAPHS[name])
    partition = partition_graph(graph, 4, "contiguous")
    assert_equals_reference(
        "dot_product, bias", graph, RAGGED, MeshShape(4), partition, dropout=False
    )


@pytest.mark.usefixtures("emulation")
def test_parts_may_be_empty_and_of_any_size():
    graph = graph_of(*GRAPHS["prime"])
    owner_n = np.where(np.arange(101) < 90, 2, np.where(np.arange(101) < 100, 0, 3))
    assert_equals_reference(
        "dot_product, bias", graph, RAGGED, MeshShape(4), Partition(owner_n.astype(np.int32), 4)
    )


@settings(deadline=None)
@given(st.data())
def test_pieces_meet_and_bring_what_is_needed(data):
    parts, rows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    needed = []
    for p in range(parts):
        others = [i for i in range(parts * rows) if i // rows != p]
        some = data.draw(st.sets(st.sampled_from(others))) if others else set()
        needed.append(np.array(sorted(some), np.int64))
    plan = plan_ragged(needed, rows)
    assert plan.sent.rows == plan.rows_s.shape[1]
    np.testing.assert_array_equal(plan.sent.here_p, plan.received.there_p.T)
    np.testing.assert_array_equal(plan.sent.there_p, plan.received.here_p.T)
    np.testing.assert_array_equal(plan.sent.sizes_p, plan.received.sizes_p.T)
    for p in range(parts):
        table = np.full(plan.received.rows, -1)
        for q in range(parts):
            size, start = plan.sent.sizes_p[q, p], plan.sent.here_p[q, p]
            to = plan.sent.there_p[q, p]
            assert (table[to : to + size] == -1).all()
            table[to : to + size] = plan.rows_s[q, start : start + size] + q * rows
        np.testing.assert_array_equal(table[: len(needed[p])], needed[p])
        assert (table[len(needed[p]) :] == -1).all()


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_a_layer_takes_one_collective_forward_and_one_backward(platform):
    graph = graph_of(*GRAPHS["prime"])
    partition = partition_graph(graph, 4, "random")
    here = OnDevices(graph, RAGGED, MeshShape(4), partition, "xla")
    case = CASES["dot_product"]
    rows = case.rows(graph.num_nodes, graph.num_edges)
    q, (k, v) = here.nodes((rows["receiver"], rows["sender"]))
    loss = jax.jit(
        jax.grad(lambda q, k, v: here.neighbours.attend(q, k, v).sum(), argnums=(0, 1, 2))
    )
    text = loss.trace(q, k, v).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("@ragged_all_to_all") == 2
    for other in ("all_gather", "all_to_all", "collective_permute", "all_reduce"):
        assert f"stablehlo.{other}" not in text, other
    work = op_work(case.op, q, (k, v), None, None)
    transfers = RAGGED.demand(partition.cut(graph), work, MeshShape(4)).transfers
    assert {(t.collective, t.count) for t in transfers} == {("ragged-all-to-all", 1)}
    exchange = here.layout.arrays.exchange
    moved = [t.bytes / (2 * 32 * 4) for t in transfers]
    assert moved == [exchange.received.rows, exchange.sent.rows]

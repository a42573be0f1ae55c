"""Clusters: ops within each part, nothing from elsewhere, shapes that never change."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.clusters import LOCAL
from gtjax.batching.table import BATCHINGS
from gtjax.graph import GENERATORS
from gtjax.partition import Partition, Regrouping, partition_graph
from gtjax.sharding.collectives import collectives
from gtjax.sharding.mesh import Spread, make_mesh
from gtjax.strategies import STRATEGIES, MeshShape, number_nodes, op_work
from pallas_kernels.edges import EDGE_FORMS, TooLargeError
from tests.kernels.op_cases import CASES, DROPOUT
from tests.kernels.oracle import awkward_graphs
from tests.strategies.on_devices import OnDevices, graph_of
from tests.strategies.test_demand import compiled_text
from tests.strategies.test_exact import assert_close

GRAPHS = awkward_graphs()


def near_edges(graph, partition):
    return partition.owner_n[graph.senders_e] == partition.owner_n[graph.receivers_e]


def assert_equals_reference_within_parts(name, graph, partition, kernel="auto"):
    """Values and gradients are those of the graph without the edges between parts."""
    case = CASES[name]
    rows = case.rows(graph.num_nodes, graph.num_edges)
    dout = np.random.default_rng(1).standard_normal(case.out_shape(graph.num_nodes))
    here = OnDevices(graph, LOCAL, MeshShape(partition.num_parts), partition, kernel)
    placed = {
        "receiver": here.nodes(rows["receiver"]),
        "sender": here.nodes(rows["sender"]),
        "edge": here.edges(rows["edge"]),
        "shared": rows["shared"],
    }
    weights = here.nodes(dout.astype(np.float32))

    def loss(rows):
        out = here.neighbours.apply(case.op, **rows, dropout=(DROPOUT.rate, jnp.uint32(11)))
        return (out * weights).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(placed)
    # Edges between parts are there with no weight: what they would say reaches nobody.
    near = near_edges(graph, partition)
    numbers = np.flatnonzero(near)
    ends = (graph.senders_e[near], graph.receivers_e[near])
    kept = dict(rows, edge=jax.tree.map(lambda x: x[near], rows["edge"]))
    want, want_grads = case.oracle(kept, *ends, dout, DROPOUT, numbers)
    assert_close(here.nodes_back(out), want, "out")
    for part in ("receiver", "sender"):
        jax.tree.map(
            lambda a, b, part=part: assert_close(here.nodes_back(a), b, part),
            grads[part],
            want_grads[part],
        )
    got = here.edges_back(grads["edge"])
    assert_close(got[near], want_grads["edge"], "gradient of edges")
    assert np.isnan(got[~near]).all()  # edges between parts are on no device
    return near


@pytest.mark.parametrize("kernel", ["auto", "xla"])
def test_values_and_gradients_are_those_of_the_parts_alone(kernel):
    graph = graph_of(*GRAPHS["hub receives half of all edges"])
    partition = partition_graph(graph, 4, "random")
    for name in ("dot_product, bias", "sum, weights"):
        near = assert_equals_reference_within_parts(name, graph, partition, kernel)
        assert 0 < near.sum() < len(near)  # or nothing was tested


def test_parts_may_be_empty():
    graph = graph_of(*GRAPHS["prime"])
    owner_n = np.where(np.arange(101) < 90, 2, 0)
    assert_equals_reference_within_parts("dot_product, bias", graph, Partition(owner_n, 4))


def test_ops_move_nothing_and_demand_nothing():
    graph, case = GENERATORS["rmat"](nodes=300, edges=2000, seed=3), CASES["dot_product"]
    partition = partition_graph(graph, 4, "random")
    here = OnDevices(graph, LOCAL, MeshShape(4), partition)
    assert collectives(compiled_text(here, graph, case)) == []
    rows = case.rows(graph.num_nodes, graph.num_edges)
    work = op_work(case.op, rows["receiver"], rows["sender"], None, None)
    demand = LOCAL.demand(partition.cut(graph), work, MeshShape(4))
    assert demand.transfers == ()
    assert demand.held.remote == 0
    near = near_edges(graph, partition)
    most = np.bincount(partition.owner_n[graph.receivers_e[near]]).max()
    assert demand.passes[0].edges == most
    assert LOCAL.padded_edges(partition.cut(graph), MeshShape(4)) == most
    assert here.layout.edge_pe.shape == (4, most)


def test_every_draw_of_parts_gets_the_shapes_of_the_first():
    graph = GENERATORS["rmat"](nodes=997, edges=6000, seed=3)
    mesh, clusters = MeshShape(4), partition_graph(graph, 32, "random")
    regrouping = Regrouping(graph, clusters, 4)
    first = next(regrouping.partitions(0))
    bounds = regrouping.bounds

    def laid_out(partition, **fit):
        numbering = number_nodes(partition, at_least=bounds.nodes)
        settings = {"forms": EDGE_FORMS, "at_least": bounds.edges, **fit}
        return LOCAL.layout(graph, numbering, numbering, mesh, **settings)

    arrays = laid_out(first, room=1.1).arrays
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    fitting, different = 0, set()
    for number in range(20):
        try:
            layout = laid_out(next(regrouping.partitions(number)), like=shapes)
        except TooLargeError:
            continue
        fitting += 1
        different.add(layout.arrays.senders_e.tobytes())
        got = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), layout.arrays)
        assert got == shapes
        assert layout.receivers.node_pr.shape == (4, bounds.nodes)
        assert layout.edge_pe.shape == (4, bounds.edges)
    assert fitting >= 16  # a rare one is drawn again
    assert len(different) == fitting


def test_what_mixes_all_nodes_is_refused_and_so_is_a_feature_axis():
    over = Spread(STRATEGIES["node_halo"], MeshShape(4), make_mesh(MeshShape(4)))
    clusters = BATCHINGS["clusters"]
    assert clusters.refusal(over, None) is None
    assert BATCHINGS["full"].refusal(over, "--model.norm batch") is None
    said = str(clusters.refusal(over, "--model.norm batch"))
    assert "nothing but gradients; --model.norm batch mixes all nodes" in said
    square = dataclasses.replace(over, shape=MeshShape(2, 2))
    assert "over the node axis alone" in str(clusters.refusal(square, None))
    assert not clusters.sees_all

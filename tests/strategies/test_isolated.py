"""Isolated parts: attention within each, nothing from elsewhere, shapes that never change."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.graph import GENERATORS, UserError
from gtjax.partition import Partition, Regrouping, partition_graph
from gtjax.sharding.collectives import collectives
from gtjax.strategies import STRATEGIES, Isolated, MeshShape, ModelShape, TooLargeError
from pallas_kernels.segment_attention import keep_scale
from tests.kernels.conformance import ALL_KERNELS, KERNELS
from tests.kernels.oracle import awkward_graphs, dense_attention
from tests.strategies.on_devices import OnDevices, graph_of
from tests.strategies.test_demand import MODEL, compiled_text
from tests.strategies.test_exact import DROPOUT, HEADS, assert_close, tables

GRAPHS = awkward_graphs()


def assert_equals_dense_within_parts(graph, strategy, partition, kernel="auto"):
    """Values and gradients are those of the graph without the edges between parts."""
    q, k, v, bias_eh, dout = tables(graph)
    here = OnDevices(graph, strategy, MeshShape(partition.num_parts), partition, kernel)
    draw = (DROPOUT.rate, jnp.uint32(DROPOUT.seed))

    placed = here.nodes(dout)

    def loss(q, k, v, bias_eh):
        out = here.attention(q, k, v, bias_eh, dropout=draw)
        return (out * placed).sum(), out

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    (_, out), grads = run(*map(here.nodes, (q, k, v)), here.edges(bias_eh))
    near = partition.owner_n[graph.senders_e] == partition.owner_n[graph.receivers_e]
    keep = keep_scale(DROPOUT, jnp.arange(graph.num_edges), HEADS)[near]
    ends = (graph.senders_e[near], graph.receivers_e[near])
    want, want_grads = dense_attention(q, k, v, *ends, bias_eh[near], keep, dout)
    assert_close(here.nodes_back(out), want, "out")
    for name, got, expected in zip("qkv", grads, want_grads, strict=False):
        assert_close(here.nodes_back(got), expected, f"gradient of {name}")
    got_bias = here.edges_back(grads[3])
    assert_close(got_bias[near], want_grads[3], "gradient of the bias")
    assert np.isnan(got_bias[~near]).all()  # edges between parts are on no device
    return near


@pytest.mark.parametrize("kernel", KERNELS)
def test_values_and_gradients_are_those_of_the_parts_alone(kernel):
    graph = graph_of(*GRAPHS["all at once"])
    partition = partition_graph(graph, 4, "random")
    near = assert_equals_dense_within_parts(graph, Isolated(), partition, kernel)
    assert 0 < near.sum() < len(near)  # or nothing was tested


@pytest.mark.parametrize("name", ["isolated", "multi-edges", "no edges", "one node, one loop"])
def test_awkward_graphs_and_more_rows_and_edges_than_needed(name):
    graph = graph_of(*GRAPHS[name])
    partition = partition_graph(graph, 3, "random")
    assert_equals_dense_within_parts(graph, Isolated(rows=41, edges=97), partition)


def test_parts_may_be_empty():
    graph = graph_of(*GRAPHS["prime"])
    owner_n = np.where(np.arange(101) < 90, 2, 0)
    assert_equals_dense_within_parts(graph, Isolated(), Partition(owner_n, 4))


def test_rounds_of_propagation_stay_within_the_part():
    graph = graph_of(*GRAPHS["prime"])
    partition = partition_graph(graph, 4, "contiguous")
    q, k, v, _, _ = tables(graph)
    here = OnDevices(graph, Isolated(), MeshShape(4), partition, "auto")
    out = here.attention.propagate(*map(here.nodes, (q, k, v)), None, rounds=3, restart=0.2)
    near = partition.owner_n[graph.senders_e] == partition.owner_n[graph.receivers_e]
    want = v
    for _ in range(3):
        mixed, _ = dense_attention(q, k, want, graph.senders_e[near], graph.receivers_e[near])
        want = 0.8 * mixed + 0.2 * v
    assert_close(here.nodes_back(out), want, "out")


def test_attention_moves_nothing_and_demands_nothing():
    graph = GENERATORS["rmat"](nodes=300, edges=2000, seed=3)
    partition = partition_graph(graph, 4, "random")
    here = OnDevices(graph, Isolated(), MeshShape(4), partition, "auto")
    assert collectives(compiled_text(here, graph)) == []
    demand = Isolated().demand(partition.cut(graph), MODEL, MeshShape(4))
    assert demand.transfers == ()
    assert demand.remote_bytes == 0
    near = partition.owner_n[graph.senders_e] == partition.owner_n[graph.receivers_e]
    most = np.bincount(partition.owner_n[graph.receivers_e[near]]).max()
    assert demand.flops == 14 * MODEL.hidden * most
    assert Isolated().padded_edges(partition.cut(graph), MeshShape(4)) == most
    assert here.layout.edge_pe.shape == (4, most)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_every_draw_of_parts_gets_the_shapes_of_the_first(kernel):
    graph = GENERATORS["rmat"](nodes=997, edges=6000, seed=3)
    mesh, clusters = MeshShape(4), partition_graph(graph, 32, "random")
    regrouping = Regrouping(graph, clusters, 4)
    first = next(regrouping.partitions(0))
    bounds = regrouping.bounds
    strategy = Isolated(rows=bounds.nodes, edges=bounds.edges, room=1.1)
    arrays = strategy.layout(graph, first, mesh, kernel=kernel).arrays
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    alike = dataclasses.replace(strategy, like=shapes)
    fitting, different = 0, set()
    for number in range(20):
        partition = next(regrouping.partitions(number))
        try:
            layout = alike.layout(graph, partition, mesh, kernel=kernel)
        except TooLargeError:
            continue
        fitting += 1
        different.add(layout.arrays.senders_e.tobytes())
        assert jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), layout.arrays) == (
            shapes
        )
        assert layout.numbering.node_pr.shape == (4, bounds.nodes)
        assert layout.edge_pe.shape == (4, bounds.edges)
    assert fitting >= 18  # a rare one is drawn again
    assert len(different) == fitting


@pytest.mark.parametrize("setting", ["--model.norm batch", "--model.global-attention"])
def test_a_model_that_mixes_all_nodes_is_refused(setting):
    model = dataclasses.replace(MODEL, couples_nodes=setting)
    said = f"isolated exchanges nothing but gradients; {setting} mixes all nodes"
    with pytest.raises(UserError, match=said):
        STRATEGIES["isolated"].check(model, MeshShape(4))
    STRATEGIES["isolated"].check(MODEL, MeshShape(4))


def test_a_feature_axis_is_refused():
    with pytest.raises(UserError, match="isolated spreads over node alone"):
        Isolated().check(ModelShape(1, 8, 2), MeshShape(2, 2))


def test_it_alone_is_approximate():
    assert [name for name, strategy in STRATEGIES.items() if not strategy.exact] == ["isolated"]

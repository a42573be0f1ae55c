"""Every exact strategy gives what one device gives: one tolerance for all of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.partition import Partition, partition_graph
from gtjax.strategies import STRATEGIES, MeshShape, NodeByFeature
from pallas_kernels.segment_attention import Dropout, keep_scale
from tests.kernels.conformance import KERNELS
from tests.kernels.oracle import awkward_graphs, dense_attention
from tests.strategies.on_devices import OnDevices, graph_of

TOLERANCE = 2e-5
HEADS, WIDTH = 8, 4
DROPOUT = Dropout(0.3, 11)
GRAPHS = awkward_graphs()
NODE_STRATEGIES = ["node_all_gather", "node_halo", "node_ring"]

CASES = [("single", MeshShape())]
CASES += [(name, MeshShape(parts)) for name in NODE_STRATEGIES for parts in (1, 2, 3, 4, 8)]
CASES += [("feature_all_to_all", MeshShape(1, size)) for size in (1, 2, 4, 8)]
CASES += [
    (f"node_by_feature over {name}", shape)
    for name in NODE_STRATEGIES
    for shape in (MeshShape(2, 2), MeshShape(3, 2), MeshShape(2, 4), MeshShape(4, 2))
]


def strategy_called(name):
    outer, _, inner = name.partition(" over ")
    return NodeByFeature(inner=STRATEGIES[inner]) if inner else STRATEGIES[outer]


def tables(graph, seed=0):
    rng = np.random.default_rng(seed)
    shape = (graph.num_nodes, HEADS, WIDTH)
    q, k, v, dout = (rng.standard_normal(shape).astype(np.float32) for _ in range(4))
    return q, k, v, rng.standard_normal((graph.num_edges, HEADS)).astype(np.float32), dout


def assert_equals_dense(graph, strategy, shape, partition, kernel="auto", bias=True, dropout=True):
    q, k, v, bias_eh, dout = tables(graph)
    here = OnDevices(graph, strategy, shape, partition, kernel)
    draw = (DROPOUT.rate, jnp.uint32(DROPOUT.seed)) if dropout else None

    placed = here.nodes(dout)

    def loss(q, k, v, bias_eh):
        out = here.attention(q, k, v, bias_eh, dropout=draw)
        return (out * placed).sum(), out

    arguments = (*(here.nodes(x) for x in (q, k, v)), here.edges(bias_eh if bias else None))
    wanted = (0, 1, 2, 3) if bias else (0, 1, 2)
    run = jax.jit(jax.value_and_grad(loss, argnums=wanted, has_aux=True))
    (_, out), grads = run(*arguments)
    keep = keep_scale(DROPOUT, jnp.arange(graph.num_edges), HEADS) if dropout else None
    want, want_grads = dense_attention(
        *(q, k, v, graph.senders_e, graph.receivers_e), bias_eh if bias else None, keep, dout
    )
    assert_close(here.nodes_back(out), want, "out")
    for name, got, expected in zip("qkv", grads, want_grads, strict=False):
        assert_close(here.nodes_back(got), expected, f"gradient of {name}")
    if bias:
        assert_close(here.edges_back(grads[3]), want_grads[3], "gradient of the bias")


def assert_close(got, want, what):
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)


@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda x: str(x))
def test_values_and_gradients_equal_the_dense_oracle(name, shape):
    graph = graph_of(*GRAPHS["all at once"])
    partition = partition_graph(graph, shape.node, "random")
    assert_equals_dense(graph, strategy_called(name), shape, partition)


@pytest.mark.parametrize("name", [n for n in GRAPHS if n not in ("all at once", "hub of hubs")])
@pytest.mark.parametrize("strategy", [*NODE_STRATEGIES, "feature_all_to_all"])
def test_awkward_graphs_over_four_devices(strategy, name):
    graph = graph_of(*GRAPHS[name])
    shape = MeshShape(1, 4) if strategy == "feature_all_to_all" else MeshShape(4)
    partition = partition_graph(graph, shape.node, "contiguous")
    assert_equals_dense(graph, STRATEGIES[strategy], shape, partition, dropout=False)


@pytest.mark.parametrize("strategy", NODE_STRATEGIES)
def test_parts_may_be_empty_and_of_any_size(strategy):
    graph = graph_of(*GRAPHS["prime"])
    owner_n = np.where(np.arange(101) < 90, 2, np.where(np.arange(101) < 100, 0, 3))
    partition = Partition(owner_n.astype(np.int32), 4)
    assert_equals_dense(graph, STRATEGIES[strategy], MeshShape(4), partition)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("node_all_gather", MeshShape(3)),
        ("node_halo", MeshShape(3)),
        ("node_ring", MeshShape(3)),
        ("feature_all_to_all", MeshShape(1, 4)),
        ("node_by_feature over node_ring", MeshShape(2, 2)),
    ],
)
def test_every_kernel_under_every_strategy(name, shape, kernel):
    graph = graph_of(*GRAPHS["hub receives half of all edges"])
    partition = partition_graph(graph, shape.node, "random")
    assert_equals_dense(graph, strategy_called(name), shape, partition, kernel)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_partition_of_any_graph(data):
    nodes = data.draw(st.integers(1, 12))
    ends = st.lists(st.integers(0, nodes - 1), min_size=20, max_size=20)
    owners = st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes)
    graph = graph_of(np.array(data.draw(ends)), np.array(data.draw(ends)), nodes)
    partition = Partition(np.array(data.draw(owners), np.int32), 3)
    strategy = STRATEGIES[data.draw(st.sampled_from(NODE_STRATEGIES))]
    assert_equals_dense(graph, strategy, MeshShape(3), partition)

"""The softmax of edges, and propagation by it, against a float64 reference under all strategies."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from gtjax.partition import partition_graph
from gtjax.strategies import MeshShape
from tests.kernels.oracle import awkward_graphs, dense_propagation
from tests.strategies.on_devices import OnDevices, graph_of
from tests.strategies.test_exact import assert_close, strategy_called

GRAPHS = awkward_graphs()


@pytest.mark.parametrize(
    ("spread", "shape"),
    [
        ("single", MeshShape()),
        ("node_all_gather", MeshShape(3)),
        ("node_halo", MeshShape(3)),
        ("node_ring", MeshShape(4)),
        ("feature_all_to_all", MeshShape(1, 4)),
        ("node_by_feature over node_halo", MeshShape(2, 2)),
    ],
    ids=lambda x: str(x),
)
@pytest.mark.quick_every(6)
def test_rounds_by_the_same_weights(spread, shape):
    graph = graph_of(*GRAPHS["hub receives half of all edges"])
    rng = np.random.default_rng(0)
    size = (graph.num_nodes, 4, 4)
    q, k, v, dout = (rng.standard_normal(size).astype(np.float32) for _ in range(4))
    bias = rng.standard_normal((graph.num_edges, 4)).astype(np.float32)
    partition = partition_graph(graph, shape.node, "random")
    here = OnDevices(graph, strategy_called(spread), shape, partition)
    weights = here.nodes(dout)

    def loss(q, k, v, bias):
        out = here.neighbours.propagate(q, k, v, bias, rounds=3, restart=0.2)
        return (out * weights).sum(), out

    arguments = (*here.nodes((q, k, v)), here.edges(bias))
    (_, out), grads = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True))(
        *arguments
    )
    keep = np.ones((graph.num_edges, 4))
    ends = (graph.senders_e, graph.receivers_e)
    want, want_grads = dense_propagation(q, k, v, *ends, bias, keep, 3, 0.2, dout)
    assert_close(here.nodes_back(out), want, "out")
    for name, got, expected in zip("qkv", grads, want_grads, strict=False):
        assert_close(here.nodes_back(got), expected, f"gradient of {name}")
    assert_close(here.edges_back(grads[3]), want_grads[3], "gradient of the bias")

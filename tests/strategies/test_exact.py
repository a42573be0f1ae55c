"""Every op gives under every strategy what a float64 reference gives: one tolerance for all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.partition import Partition, partition_graph
from gtjax.strategies import STRATEGIES, MeshShape, NodeByFeature
from tests.kernels.op_cases import CASES, DROPOUT
from tests.kernels.oracle import awkward_graphs
from tests.marks import in_turn
from tests.strategies.on_devices import OnDevices, graph_of

TOLERANCE = 2e-5
GRAPHS = awkward_graphs()
NODE_STRATEGIES = ["node_all_gather", "node_halo", "node_ring"]

SPREADS = [("single", MeshShape())]
SPREADS += [(name, MeshShape(parts)) for name in NODE_STRATEGIES for parts in (1, 2, 3, 4, 8)]
SPREADS += [("feature_all_to_all", MeshShape(1, size)) for size in (1, 2, 4, 8)]
SPREADS += [
    (f"node_by_feature over {name}", shape)
    for name in NODE_STRATEGIES
    for shape in (MeshShape(2, 2), MeshShape(3, 2), MeshShape(2, 4), MeshShape(4, 2))
]
# What is shared by all edges, its own table of edges, heads, channels, and nothing to share out.
DIFFERENT = ["dot_product, bias", "gatv2, edges", "mean, one head", "max", "custom softmax"]


def strategy_called(name):
    outer, _, inner = name.partition(" over ")
    return NodeByFeature(inner=STRATEGIES[inner]) if inner else STRATEGIES[outer]


def assert_equals_reference(
    name, graph, strategy, shape, partition, kernel="auto", dropout=True, tolerance=TOLERANCE, **on
):
    case = CASES[name]
    here = OnDevices(graph, strategy, shape, partition, kernel, **on)
    rows = case.rows(graph.num_nodes, graph.num_edges)
    shape = case.out_shape(graph.num_nodes)
    dout = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    draw = DROPOUT if dropout and case.heads else None
    placed = {
        "receiver": here.nodes(rows["receiver"]),
        "sender": here.nodes(rows["sender"]),
        "edge": here.edges(rows["edge"]),
        "shared": rows["shared"],
    }
    weights = here.nodes(dout)

    def loss(rows):
        drawn = None if draw is None else (draw.rate, jnp.uint32(draw.seed))
        out = here.neighbours.apply(case.op, **rows, dropout=drawn)
        return (out * weights).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(placed)
    want, want_grads = case.oracle(rows, graph.senders_e, graph.receivers_e, dout, draw)
    back = {"receiver": here.nodes_back, "sender": here.nodes_back, "edge": here.edges_back}
    assert_close(here.nodes_back(out), want, "out", tolerance)
    for part, tree in grads.items():
        for (path, got), expected in zip(
            jax.tree_util.tree_leaves_with_path(tree),
            jax.tree.leaves(want_grads[part]),
            strict=True,
        ):
            got = back.get(part, np.asarray)(got)
            # What is shared sums up over all edges, and so do its rounding errors.
            scale = max(1.0, np.abs(expected).max()) if part == "shared" else 1.0
            what = f"gradient of {part}{jax.tree_util.keystr(path)}"
            assert_close(got, expected, what, tolerance, scale)


def assert_close(got, want, what, tolerance=TOLERANCE, scale=1.0):
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def marked(pairs):
    return [
        pytest.param(a, *b, id="-".join(map(str, (a, *b))), marks=() if quick else pytest.mark.slow)
        for a, b, quick in pairs
    ]


@pytest.mark.parametrize(("name", "spread", "shape"), marked(in_turn(DIFFERENT, SPREADS, every=2)))
@pytest.mark.quick_every(6)
def test_ops_of_every_kind_on_every_mesh(name, spread, shape):
    graph = graph_of(*GRAPHS["all at once"])
    partition = partition_graph(graph, shape.node, "random")
    assert_equals_reference(name, graph, strategy_called(spread), shape, partition)


ONE_OF_EACH = [
    ("node_all_gather", MeshShape(3)),
    ("node_halo", MeshShape(3)),
    ("node_ring", MeshShape(3)),
    ("feature_all_to_all", MeshShape(1, 4)),
    ("node_by_feature over node_ring", MeshShape(2, 2)),
]


@pytest.mark.parametrize(
    ("name", "spread", "shape"),
    marked((name, one, quick) for one, name, quick in in_turn(ONE_OF_EACH, CASES)),
)
@pytest.mark.quick_every(4)
def test_every_op_under_every_strategy(name, spread, shape):
    graph = graph_of(*GRAPHS["hub receives half of all edges"])
    partition = partition_graph(graph, shape.node, "random")
    assert_equals_reference(name, graph, strategy_called(spread), shape, partition)


@pytest.mark.parametrize(
    ("strategy", "name"),
    marked(
        (strategy, (name,), quick)
        for strategy, name, quick in in_turn(
            [*NODE_STRATEGIES, "feature_all_to_all"],
            [n for n in GRAPHS if n not in ("all at once", "hub of hubs")],
        )
    ),
)
@pytest.mark.quick_every(6)
def test_awkward_graphs_over_four_devices(strategy, name):
    graph = graph_of(*GRAPHS[name])
    shape = MeshShape(1, 4) if strategy == "feature_all_to_all" else MeshShape(4)
    partition = partition_graph(graph, shape.node, "contiguous")
    assert_equals_reference(
        "dot_product, bias", graph, STRATEGIES[strategy], shape, partition, dropout=False
    )


@pytest.mark.parametrize("strategy", NODE_STRATEGIES)
def test_parts_may_be_empty_and_of_any_size(strategy):
    graph = graph_of(*GRAPHS["prime"])
    owner_n = np.where(np.arange(101) < 90, 2, np.where(np.arange(101) < 100, 0, 3))
    partition = Partition(owner_n.astype(np.int32), 4)
    for name in ("dot_product, bias", "custom sum"):
        assert_equals_reference(name, graph, STRATEGIES[strategy], MeshShape(4), partition)


@pytest.mark.parametrize("strategy", NODE_STRATEGIES)
@pytest.mark.quick_every(6)
def test_the_xla_kernel_under_every_strategy(strategy):
    graph = graph_of(*GRAPHS["hub receives half of all edges"])
    partition = partition_graph(graph, 3, "random")
    for name in ("dot_product, bias", "sum, weights"):
        settings = (graph, STRATEGIES[strategy], MeshShape(3), partition, "xla")
        assert_equals_reference(name, *settings)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_partition_of_any_graph(data):
    nodes = data.draw(st.integers(1, 12))
    ends = st.lists(st.integers(0, nodes - 1), min_size=20, max_size=20)
    owners = st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes)
    graph = graph_of(np.array(data.draw(ends)), np.array(data.draw(ends)), nodes)
    partition = Partition(np.array(data.draw(owners), np.int32), 3)
    strategy = STRATEGIES[data.draw(st.sampled_from(NODE_STRATEGIES))]
    name = data.draw(st.sampled_from(["dot_product, bias", "gatv2", "max"]))
    assert_equals_reference(name, graph, strategy, MeshShape(3), partition)

"""The model: its gradients, its branches, and what may not leak or depend on storage."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.graph import Graph
from gtjax.nn import Inputs, Sizes, hide_labels, show_labels
from gtjax.nn.models import MODELS, model_entry
from gtjax.nn.noise import Noise
from tests.kernels.oracle import dense_attention
from tests.marks import in_turn, slow
from tests.nn.local import LocalNeighbours

NODES, FEATURES, CLASSES = 37, 5, 4


def make_graph(edge_features=0, seed=0):
    rng = np.random.default_rng(seed)
    edge_x = rng.standard_normal((150, edge_features)) if edge_features else None
    return Graph(
        rng.integers(0, NODES, 150),
        rng.integers(0, NODES - 3, 150),  # the last nodes receive nothing
        rng.standard_normal((NODES, FEATURES)),
        rng.integers(0, CLASSES, NODES),
        edge_x_ef=edge_x,
    )


def make_model(edge_features=0, name="transformer", **changes):
    entry = model_entry(name)
    known = {"hidden": 12, "heads": 3, "layers": 2, **changes}
    if "heads" not in entry.config.__dataclass_fields__:
        del known["heads"]
    config = entry.config(**known)
    positional = config.positional_size if config.positional != "none" else 0
    sizes = Sizes(FEATURES, edge_features, positional, CLASSES)
    return entry.make(config, sizes, rngs=nnx.Rngs(params=0))


def run(model, graph, key=None, **inputs):
    edge_x_ef, neighbours = LocalNeighbours.of(graph)
    batch = Inputs(jnp.asarray(graph.x_nf), None, edge_x_ef)._replace(**inputs)
    graphdef, params = nnx.split(model)
    compiled = jax.jit(
        lambda params, batch: nnx.merge(graphdef, params)(batch.live(key), neighbours)
    )
    return compiled(params, batch)


class DenseNeighbours(LocalNeighbours):
    """Attention of the oracle."""

    def __init__(self, senders_e, receivers_e, nodes):
        super().__init__(senders_e, receivers_e, nodes)
        self.ends = senders_e, receivers_e

    def attend(self, q_nhd, k_nhd, v_nhd, bias_eh=None, *, dropout=None):
        assert dropout is None
        dense = dense_attention(q_nhd, k_nhd, v_nhd, *self.ends, bias_eh)[0]
        return jnp.asarray(dense, jnp.float32)


@pytest.mark.parametrize(
    ("branches", "norm"),
    [
        (branches, norm) if quick else slow(branches, norm)
        for branches, norm, quick in in_turn(
            [{}, {"global_attention": True}, {"feed_forward": 0.0}],
            ["layer", "rms", "batch", "none"],
        )
    ],
)
def test_a_model_over_the_kernel_equals_one_over_dense_attention(norm, branches):
    graph, model = make_graph(edge_features=2), make_model(2, norm=norm, **branches)
    order = graph.by_receiver.edge_ids_e
    edge_x_ef, neighbours = LocalNeighbours.of(graph)
    dense = DenseNeighbours(graph.senders_e[order], graph.receivers_e[order], NODES)
    inputs = Inputs(jnp.asarray(graph.x_nf), edge_x_ef=edge_x_ef)
    got, want = model(inputs, neighbours), model(inputs, dense)
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_every_parameter_gets_a_gradient_that_finite_differences_confirm():
    graph = make_graph(edge_features=2)
    model = make_model(2, global_attention=True, label_input=True, positional="random_walk")
    check_gradients(model, graph)


def test_gradients_of_the_decoupled_model_flow_through_its_attention_weights():
    model = make_model(2, name="decoupled", label_input=True, positional="random_walk")
    check_gradients(model, make_graph(edge_features=2))


def check_gradients(model, graph):
    shown = jnp.asarray(np.where(np.arange(NODES) % 2, graph.labels_n, -1))
    positional = jnp.asarray(np.random.default_rng(3).standard_normal((NODES, 16)), jnp.float32)
    graphdef, params = nnx.split(model, nnx.Param)
    leaves, shape = jax.tree.flatten(params)

    def loss(leaves):
        merged = nnx.merge(graphdef, jax.tree.unflatten(shape, leaves))
        out = run(merged, graph, shown_labels_n=shown, positional_np=positional)
        return jnp.square(out).mean()

    grads = jax.jit(jax.grad(loss))(leaves)
    assert all(np.abs(g).max() > 0 for g in grads)
    rng = np.random.default_rng(5)
    direction = [jnp.asarray(rng.standard_normal(g.shape), jnp.float32) for g in grads]
    step = 1e-3
    value = jax.jit(loss)
    up = value([a + step * d for a, d in zip(leaves, direction, strict=True)])
    down = value([a - step * d for a, d in zip(leaves, direction, strict=True)])
    slope = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
    assert (up - down) / (2 * step) == pytest.approx(slope, rel=2e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "layer", "global_attention": True},
        {"norm": "batch", "global_attention": True},
        *({"name": name, "norm": "batch"} for name in ("gcn", "sage", "gin", "gat", "gatv2")),
    ],
    ids=str,
)
def test_padding_nodes_change_nothing(changes):
    graph, model = make_graph(), make_model(**changes)
    x = np.concatenate([graph.x_nf, np.full((6, FEATURES), 1e3, np.float32)])
    labels = np.concatenate([graph.labels_n, np.full(6, -1)])
    padded = Graph(graph.senders_e, graph.receivers_e, x, labels)
    valid = jnp.arange(NODES + 6) < NODES
    got = run(model, padded, valid_n=valid)[:NODES]
    np.testing.assert_allclose(got, run(model, graph), atol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "gcn"])
def test_dropout_follows_the_node_and_not_its_place(name):
    graph, model = make_graph(), make_model(name=name, dropout=0.4, input_dropout=0.2)
    order = np.random.default_rng(1).permutation(NODES)
    place = np.argsort(order)
    moved = Graph(
        place[graph.senders_e], place[graph.receivers_e], graph.x_nf[order], graph.labels_n[order]
    )
    key = jax.random.key(9)
    here = run(model, graph, key, node_ids_n=jnp.arange(NODES))
    there = run(model, moved, key, node_ids_n=jnp.asarray(order))
    np.testing.assert_allclose(there, here[order], atol=1e-5)
    assert np.abs(here - run(model, graph)).max() > 0.01


@pytest.mark.parametrize("name", ["transformer", "decoupled", "gat", "gatv2"])
def test_attention_dropout_is_on_in_training_only(name):
    graph, model = make_graph(), make_model(name=name, dropout=0.0, attention_dropout=0.5)
    still = run(model, graph)
    assert np.abs(run(model, graph, jax.random.key(0)) - still).max() > 0.01
    np.testing.assert_array_equal(run(model, graph), still)


@given(seed=st.integers(0, 2**31), rate=st.sampled_from([0.1, 0.5, 0.8]))
@settings(max_examples=20, deadline=None)
def test_dropout_keeps_mean_and_share(seed, rate):
    dropped = Noise(jax.random.key(seed)).drop(jnp.ones((3000, 16)), rate)
    assert dropped.mean() == pytest.approx(1.0, abs=0.06)
    assert float((dropped == 0).mean()) == pytest.approx(rate, abs=0.02)
    assert len(np.unique(dropped)) == 2


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 1.0), multilabel=st.booleans())
@settings(max_examples=50, deadline=None)
def test_no_label_is_both_shown_and_asked_for(seed, share, multilabel):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (500, 3) if multilabel else 500)
    train = rng.random(500) < 0.6
    shown, asked = hide_labels(
        jnp.arange(500), jnp.asarray(labels), jnp.asarray(train), share, jnp.uint32(seed)
    )
    visible = np.asarray(shown >= 0).reshape(500, -1).any(axis=1)
    assert not (visible & asked).any()
    np.testing.assert_array_equal(visible | np.asarray(asked), train)
    assert abs(asked.sum() / train.sum() - share) < 0.12


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.quick_every(6)
def test_a_hidden_label_does_not_reach_the_output(name):
    graph, model = make_graph(), make_model(name=name, label_input=True)
    train, hidden = jnp.ones(NODES, bool), jnp.arange(NODES) == 7
    outputs = []
    for label in range(CLASSES):
        labels = jnp.asarray(graph.labels_n).at[7].set(label)
        shown = show_labels(labels, train, hidden)
        outputs.append(run(model, graph, shown_labels_n=shown))
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


@pytest.mark.parametrize("dtype", ["mixed", "bfloat16"])
def test_bfloat16_keeps_parameters_and_sums_in_float32(dtype):
    graph = make_graph()
    exact, model = make_model(), make_model(dtype=dtype)
    params = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert all(p.dtype == jnp.float32 for p in params)
    logits = run(model, graph)
    assert logits.dtype == jnp.float32
    difference = np.abs(logits - run(exact, graph)).max()
    assert 0 < difference < 0.05


def test_mixed_stores_what_attention_gathers_in_bfloat16_and_nothing_else():
    seen = []

    class Seeing:
        def attend(self, q_nhd, k_nhd, v_nhd, bias_eh=None, *, dropout=None):
            seen.append((q_nhd.dtype, k_nhd.dtype, v_nhd.dtype))
            return v_nhd

    model = make_model(dtype="mixed")
    inputs = Inputs(jnp.asarray(make_graph().x_nf))
    assert model.input(inputs).dtype == jnp.float32
    model(inputs, Seeing())
    assert {dtype for dtypes in seen for dtype in dtypes} == {jnp.dtype(jnp.bfloat16)}


def test_multilabel_embedding_sums_yes_and_no():
    model = make_model(label_input=True)
    assert model.input.labels is not None
    vectors = model.input.labels.vectors[...]
    shown = jnp.array([[1, 0, -1, -1], [-1, -1, -1, -1]])
    got = model.input.labels(shown)
    np.testing.assert_allclose(got[0], vectors[0] - vectors[1], atol=1e-6)
    assert not got[1].any()


@pytest.mark.parametrize(
    ("name", "changes", "rule"),
    [
        ("transformer", {"hidden": 10, "heads": 3}, "heads divides model.hidden"),
        ("gat", {"hidden": 10, "heads": 3}, "heads divides model.hidden"),
        ("transformer", {"layers": 0}, "layers is at least 1"),
        ("gin", {"layers": 0}, "layers is at least 1"),
        ("transformer", {"dropout": 1.0}, r"dropout is in \[0, 1\)"),
        ("decoupled", {"restart": 1.0}, r"restart is in \[0, 1\)"),
        ("gatv2", {"attention_dropout": -0.1}, r"attention_dropout is in \[0, 1\)"),
        ("gatv2", {"slope": 2.0}, r"slope is in \[0, 1\]"),
        ("transformer", {"feed_forward": -1.0}, "not negative"),
    ],
)
def test_impossible_shapes_are_refused(name, changes, rule):
    with pytest.raises(ValueError, match=rule):
        MODELS[name].config(**changes)


@pytest.mark.parametrize("name", ["transformer", "gcn"])
@pytest.mark.parametrize("changes", [{"label_input": True}, {"positional": "laplacian"}])
def test_missing_inputs_are_named(name, changes):
    with pytest.raises(ValueError, match="none were given"):
        run(make_model(name=name, **changes), make_graph())


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.quick_every(6)
def test_a_graph_without_features_still_runs(name):
    bare = Graph([0, 1], [1, 0], np.zeros((3, 0)), np.zeros(3, int))
    model = MODELS[name].make(MODELS[name].config(), Sizes(0, classes=2), rngs=nnx.Rngs(params=0))
    assert np.isfinite(run(model, bare)).all()


def test_a_decoupled_model_with_even_weights_is_symmetric_propagation():
    plain = make_graph()
    graph = Graph([0, 5, 9], [9, 9, 0], plain.x_nf, plain.labels_n).symmetrised().with_self_loops()
    model = make_model(name="decoupled", layers=3, restart=0.2)
    model.query_key.kernel[...] = jnp.zeros_like(model.query_key.kernel[...])
    got = run(model, graph)
    adjacency = np.zeros((NODES, NODES))
    adjacency[graph.receivers_e, graph.senders_e] = 1
    root = np.sqrt(adjacency.sum(axis=1))
    even = adjacency / root[:, None] / root[None, :]
    start = np.asarray(jax.nn.gelu(model.norm(model.input.features(graph.x_nf), None)))
    want = start
    for _ in range(3):
        want = 0.8 * even @ want + 0.2 * start
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "decoupled", "gat", "gatv2"])
def test_a_model_made_for_edge_features_does_not_run_without(name):
    with pytest.raises(ValueError, match="made for edge features"):
        run(make_model(2, name), make_graph())

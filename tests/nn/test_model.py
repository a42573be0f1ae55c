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
from gtjax.nn import ARCHITECTURES, GraphTransformer, Inputs, ModelConfig, hide_labels, show_labels
from gtjax.nn.noise import Noise
from gtjax.sharding.attention import Attention
from tests.kernels.oracle import dense_attention
from tests.strategies.on_devices import on_one_device

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


def make_model(edge_features=0, **changes):
    config = ModelConfig(**{"hidden": 12, "heads": 3, "layers": 2, **changes})
    architecture = ARCHITECTURES[config.architecture]
    return architecture(config, FEATURES, CLASSES, edge_features, rngs=nnx.Rngs(0))


def run(model, graph, key=None, **inputs):
    edge_x_ef, attend = on_one_device(graph)
    degree_n = jnp.asarray(graph.by_receiver.degrees_n, jnp.float32)
    batch = Inputs(jnp.asarray(graph.x_nf), None, edge_x_ef, degree_n=degree_n)
    batch = batch._replace(**inputs)
    return model(batch, attend, key=key)


def dense_attend(graph):
    order = graph.by_receiver.edge_ids_e
    senders, receivers = graph.senders_e[order], graph.receivers_e[order]

    def attend(q, k, v, bias, *, dropout=None):
        assert dropout is None
        return jnp.asarray(dense_attention(q, k, v, senders, receivers, bias)[0], jnp.float32)

    return attend


@pytest.mark.parametrize("norm", ["layer", "rms", "batch", "none"])
@pytest.mark.parametrize("branches", [{}, {"global_attention": True}, {"feed_forward": 0.0}])
def test_a_model_over_the_kernel_equals_one_over_dense_attention(norm, branches):
    graph, model = make_graph(edge_features=2), make_model(2, norm=norm, **branches)
    edge_x_ef, attend = on_one_device(graph)
    inputs = Inputs(jnp.asarray(graph.x_nf), edge_x_ef=edge_x_ef)
    got = model(inputs, attend).logits_nc
    want = model(inputs, dense_attend(graph)).logits_nc
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_every_parameter_gets_a_gradient_that_finite_differences_confirm():
    graph = make_graph(edge_features=2)
    model = make_model(2, global_attention=True, label_input=True, positional="random_walk")
    check_gradients(model, graph)


def test_gradients_of_the_decoupled_model_flow_through_its_attention_weights():
    model = make_model(2, architecture="decoupled", label_input=True, positional="random_walk")
    check_gradients(model, make_graph(edge_features=2))


def check_gradients(model, graph):
    shown = jnp.asarray(np.where(np.arange(NODES) % 2, graph.labels_n, -1))
    positional = jnp.asarray(np.random.default_rng(3).standard_normal((NODES, 16)), jnp.float32)
    graphdef, params = nnx.split(model, nnx.Param)
    leaves, shape = jax.tree.flatten(params)

    def loss(leaves):
        merged = nnx.merge(graphdef, jax.tree.unflatten(shape, leaves))
        out = run(merged, graph, shown_labels_n=shown, positional_np=positional)
        return jnp.square(out.logits_nc).mean()

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


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_padding_nodes_change_nothing(norm):
    graph, model = make_graph(), make_model(norm=norm, global_attention=True)
    x = np.concatenate([graph.x_nf, np.full((6, FEATURES), 1e3, np.float32)])
    labels = np.concatenate([graph.labels_n, np.full(6, -1)])
    padded = Graph(graph.senders_e, graph.receivers_e, x, labels)
    valid = jnp.arange(NODES + 6) < NODES
    got = run(model, padded, valid_n=valid).logits_nc[:NODES]
    np.testing.assert_allclose(got, run(model, graph).logits_nc, atol=1e-5)


def test_dropout_follows_the_node_and_not_its_place():
    graph, model = make_graph(), make_model(dropout=0.4, input_dropout=0.2)
    order = np.random.default_rng(1).permutation(NODES)
    place = np.argsort(order)
    moved = Graph(
        place[graph.senders_e], place[graph.receivers_e], graph.x_nf[order], graph.labels_n[order]
    )
    key = jax.random.key(9)
    here = run(model, graph, key, node_ids_n=jnp.arange(NODES)).logits_nc
    there = run(model, moved, key, node_ids_n=jnp.asarray(order)).logits_nc
    np.testing.assert_allclose(there, here[order], atol=1e-5)
    assert np.abs(here - run(model, graph).logits_nc).max() > 0.01


def test_attention_dropout_is_on_in_training_only():
    graph, model = make_graph(), make_model(dropout=0.0, attention_dropout=0.5)
    still = run(model, graph).logits_nc
    assert np.abs(run(model, graph, jax.random.key(0)).logits_nc - still).max() > 0.01
    np.testing.assert_array_equal(run(model, graph).logits_nc, still)


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


def test_a_hidden_label_does_not_reach_the_output():
    graph, model = make_graph(), make_model(label_input=True, global_attention=True)
    train, hidden = jnp.ones(NODES, bool), jnp.arange(NODES) == 7
    outputs = []
    for label in range(CLASSES):
        labels = jnp.asarray(graph.labels_n).at[7].set(label)
        shown = show_labels(labels, train, hidden)
        outputs.append(run(model, graph, shown_labels_n=shown).logits_nc)
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


@pytest.mark.parametrize("dtype", ["mixed", "bfloat16"])
def test_bfloat16_keeps_parameters_and_sums_in_float32(dtype):
    graph = make_graph()
    exact, model = make_model(), make_model(dtype=dtype)
    params = jax.tree.leaves(nnx.state(model, nnx.Param))
    assert all(p.dtype == jnp.float32 for p in params)
    logits = run(model, graph).logits_nc
    assert logits.dtype == jnp.float32
    difference = np.abs(logits - run(exact, graph).logits_nc).max()
    assert 0 < difference < 0.05


def test_mixed_stores_what_attention_gathers_in_bfloat16_and_nothing_else():
    seen = []

    def attend(q_nhd, k_nhd, v_nhd, bias_eh, *, dropout=None):
        seen.append((q_nhd.dtype, k_nhd.dtype, v_nhd.dtype))
        return v_nhd

    model = make_model(dtype="mixed")
    graph = make_graph()
    hidden = model.input(Inputs(jnp.asarray(graph.x_nf)), Noise(None), lambda name, value: None)
    assert hidden.dtype == jnp.float32
    model(Inputs(jnp.asarray(graph.x_nf)), attend)
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
    ("changes", "rule"),
    [
        ({"hidden": 10, "heads": 3}, "heads divides model.hidden"),
        ({"layers": 0}, "layers is at least 1"),
        ({"dropout": 1.0}, r"dropout is in \[0, 1\)"),
        ({"feed_forward": -1.0}, "not negative"),
    ],
)
def test_impossible_shapes_are_refused(changes, rule):
    with pytest.raises(ValueError, match=rule):
        ModelConfig(**changes)


@pytest.mark.parametrize("changes", [{"label_input": True}, {"positional": "laplacian"}])
def test_missing_inputs_are_named(changes):
    with pytest.raises(ValueError, match="none were given"):
        run(make_model(**changes), make_graph())


def test_a_graph_without_features_still_runs():
    bare = Graph([0, 1], [1, 0], np.zeros((3, 0)), np.zeros(3, int))
    model = GraphTransformer(ModelConfig(hidden=8, heads=2), 0, 2, rngs=nnx.Rngs(0))
    assert np.isfinite(run(model, bare).logits_nc).all()


def test_a_decoupled_model_with_even_weights_is_symmetric_propagation():
    plain = make_graph()
    graph = Graph([0, 5, 9], [9, 9, 0], plain.x_nf, plain.labels_n).symmetrised().with_self_loops()
    model = make_model(architecture="decoupled", layers=3, restart=0.2)
    model.query_key.kernel[...] = jnp.zeros_like(model.query_key.kernel[...])
    got = run(model, graph).embeddings_nf
    adjacency = np.zeros((NODES, NODES))
    adjacency[graph.receivers_e, graph.senders_e] = 1
    root = np.sqrt(adjacency.sum(axis=1))
    even = adjacency / root[:, None] / root[None, :]
    start = np.asarray(jax.nn.gelu(model.norm(model.input.features(graph.x_nf), None)))
    want = start
    for _ in range(3):
        want = 0.8 * even @ want + 0.2 * start
    np.testing.assert_allclose(got, want, atol=1e-5)


class AttentionEveryRound(Attention):
    """Propagation as attention called once a round."""

    def propagate(self, q_nhd, k_nhd, v_nhd, bias_eh, *, rounds, restart, dropout=None):
        values = v_nhd
        for _ in range(rounds):
            mixed = self(q_nhd, k_nhd, values.astype(k_nhd.dtype), bias_eh, dropout=dropout)
            values = (1 - restart) * mixed + restart * v_nhd
        return values


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("mixed", 2**-6)])
def test_rounds_of_a_decoupled_model_are_attention_called_once_a_round(dtype, tolerance):
    # Mixed: each of the four rounds rounds to 8 bits, and attention does before the restart too.
    graph = make_graph(edge_features=2)
    model = make_model(2, architecture="decoupled", layers=4, attention_dropout=0.3, dtype=dtype)
    edge_x_ef, attend = on_one_device(graph)
    every_round = AttentionEveryRound(attend.spread, attend.arrays)
    degree_n = jnp.asarray(graph.by_receiver.degrees_n, jnp.float32)
    inputs = Inputs(jnp.asarray(graph.x_nf), edge_x_ef=edge_x_ef, degree_n=degree_n)
    for key in (None, jax.random.key(3)):
        got, want = (model(inputs, way, key=key).logits_nc for way in (attend, every_round))
        np.testing.assert_allclose(got, want, atol=tolerance)


@pytest.mark.parametrize("architecture", ["transformer", "decoupled"])
def test_a_model_made_for_edge_features_does_not_run_without(architecture):
    with pytest.raises(ValueError, match="made for edge features"):
        run(make_model(2, architecture=architecture), make_graph())

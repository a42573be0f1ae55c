"""Recomputing changes what is kept in memory, and nothing that is computed."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from gtjax.graph import Graph
from gtjax.nn import GraphTransformer, Inputs, Sizes, TransformerConfig
from gtjax.nn.norm import layer_norm
from gtjax.nn.recompute import zero_after
from tests.marks import slow
from tests.nn.local import LocalNeighbours

FEATURES, CLASSES = 6, 5


def make_graph(nodes: int, edges: int, edge_features: int) -> Graph:
    rng = np.random.default_rng(0)
    return Graph(
        rng.integers(0, nodes, edges),
        rng.integers(0, nodes - 2, edges),  # the last nodes receive nothing
        rng.standard_normal((nodes, FEATURES)),
        rng.integers(0, CLASSES, nodes),
        edge_x_ef=rng.standard_normal((edges, edge_features)) if edge_features else None,
    )


def loss_and_gradients(graph: Graph, remat: str, **changes: Any) -> Any:
    """A compiled function of parameters and edge features, and what to call it with."""
    config = TransformerConfig(
        **{"hidden": 12, "heads": 3, "layers": 2, "dropout": 0.4, "remat": remat, **changes}
    )
    sizes = Sizes(FEATURES, graph.num_edge_features, 0, CLASSES)
    model = GraphTransformer(config, sizes, rngs=nnx.Rngs(params=1))
    graphdef, params = nnx.split(model, nnx.Param)
    weights_fc = jax.random.normal(jax.random.key(2), (config.hidden, CLASSES))
    edge_x_ef, neighbours = LocalNeighbours.of(graph)

    def loss(params: Any, edge_x_ef: Any) -> jax.Array:
        inputs = Inputs(jnp.asarray(graph.x_nf), edge_x_ef=edge_x_ef).live(jax.random.key(3))
        embeddings_nf = nnx.merge(graphdef, params)(inputs, neighbours)
        return jnp.square(embeddings_nf @ weights_fc).mean()

    arguments = params, edge_x_ef
    differentiated = (0,) if edge_x_ef is None else (0, 1)
    step = jax.jit(jax.value_and_grad(loss, argnums=differentiated))
    return step.lower(*arguments).compile(), arguments


@pytest.mark.parametrize(
    "changes",
    [
        slow({"attention_dropout": 0.3}),
        {"norm": "rms", "attention_dropout": 0.3},
        slow({"norm": "batch", "global_attention": True}),
        slow({"norm": "none", "feed_forward": 0.0}),
    ],
)
def test_loss_and_gradients_are_the_same_with_dropout_on(changes):
    graph = make_graph(37, 150, edge_features=2)
    kept, arguments = loss_and_gradients(graph, "none", **changes)
    wanted = jax.tree.leaves(kept(*arguments))
    largest = max(float(np.abs(want).max()) for want in wanted)
    for remat in ("elementwise", "block"):
        again, _ = loss_and_gradients(graph, remat, **changes)
        for want, got in zip(wanted, jax.tree.leaves(again(*arguments)), strict=True):
            # The same bias on all edges cancels: its gradient is nothing but rounding.
            scale = max(float(np.abs(want).max()), 0.01 * largest)
            np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 * scale)


@pytest.mark.slow
def test_each_way_keeps_less_than_the_one_before():
    graph = make_graph(4001, 9000, edge_features=0)
    size = {"hidden": 64, "heads": 4, "layers": 4}
    kept = {
        remat: loss_and_gradients(graph, remat, **size)[0].memory_analysis().temp_size_in_bytes
        for remat in ("none", "elementwise", "block")
    }
    assert kept["elementwise"] < 0.8 * kept["none"]
    assert kept["block"] < 0.95 * kept["elementwise"]


def test_one_who_watches_sees_the_blocks_of_a_model_that_recomputes_them():
    graph, seen = make_graph(11, 30, edge_features=0), []
    config = TransformerConfig(hidden=8, heads=2, layers=2, remat="block")
    model = GraphTransformer(config, Sizes(FEATURES), rngs=nnx.Rngs(params=1))
    _, neighbours = LocalNeighbours.of(graph)
    inputs = Inputs(jnp.asarray(graph.x_nf))
    model(inputs.live(None, lambda name, value: seen.append(name)), neighbours)
    blocks = [f"blocks.{n}.{part}" for n in range(2) for part in ("attention", "feed-forward")]
    assert seen == ["input", *blocks]


@given(
    shape=st.sampled_from([(1, 7), (5, 64)]),
    spread=st.sampled_from([1.0, 1e3]),
    offset=st.sampled_from([0.0, -3.0]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=10, deadline=None)
def test_layer_norm_has_values_and_gradients_of_flax(shape, spread, offset, seed):
    draws = np.random.default_rng(seed).standard_normal((4, *shape)).astype(np.float32)
    # Channels that differ by at least the spread: where they do not, both round as they like.
    x_nf = jnp.asarray(spread * (draws[0] / 4 + np.arange(shape[1])) + offset, jnp.float32)
    scale_f, bias_f = jnp.asarray(draws[2, 0]), jnp.asarray(draws[3, 0])

    def flax_norm(x_nf, scale_f, bias_f):
        layer = nnx.LayerNorm(shape[1], rngs=nnx.Rngs(0))
        layer.scale, layer.bias = nnx.Param(scale_f), nnx.Param(bias_f)
        return layer(x_nf)

    @partial(jax.jit, static_argnums=0)
    def run(norm, dy_nf, *inputs):
        value, pull = jax.vjp(norm, *inputs)
        return value, *pull(dy_nf)

    want = run(flax_norm, draws[1], x_nf, scale_f, bias_f)
    got = run(layer_norm, draws[1], x_nf, scale_f, bias_f)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    for mine, flax in zip(got[1:], want[1:], strict=True):
        np.testing.assert_allclose(mine, flax, rtol=1e-3, atol=1e-3 * np.abs(flax).max())


@given(st.lists(st.floats(width=32), min_size=1, max_size=5))
@settings(deadline=None)
def test_what_waits_for_the_gradient_is_zero_whatever_the_gradient(values):
    zeros = zero_after(jnp.asarray(values, jnp.float32)[:, None])
    np.testing.assert_array_equal(zeros, np.zeros((len(values), 1)))

"""Models in which all nodes see each other, against dense float64 with every weight written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import Inputs, Sizes
from gtjax.nn.models import MODELS
from gtjax.runs.program import couples_nodes
from tests.marks import slow
from tests.nn.local import LocalNeighbours
from tests.nn.test_models import apply, dense_conv, relu

NODES, FEATURES, EDGE_FEATURES, HIDDEN, HEADS = 23, 5, 2, 8, 2


def number(param):
    return np.asarray(param[...], np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(norm, x):
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + 1e-6)
    return x * number(norm.inner.scale) + number(norm.inner.bias)


def by_head(x, heads=HEADS):
    return x.reshape(len(x), heads, -1)


def made(name, **changes):
    config = MODELS[name].config(hidden=HIDDEN, layers=2, heads=HEADS, **changes)
    sizes = Sizes(FEATURES, EDGE_FEATURES if name in ("polynormer", "gps") else 0, 0, 3)
    model = MODELS[name].make(config, sizes, rngs=nnx.Rngs(params=1))
    graphdef, params = nnx.split(model)
    rng = np.random.default_rng(5)  # so that vectors that start as zeros or ones count
    moved = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype("f"), params)
    return nnx.merge(graphdef, moved)


def ran(model, x, edge_x, neighbours, **more):
    graphdef, params = nnx.split(model)
    inputs = Inputs(jnp.asarray(x, jnp.float32), edge_x_ef=jnp.asarray(edge_x, jnp.float32), **more)
    return jax.jit(lambda p, i: nnx.merge(graphdef, p)(i, neighbours))(params, inputs)


def share(layer, bounded):
    values = number(layer.share.values)
    return sigmoid(values) if bounded else values


def dense_polynormer(model, x, edge_x, bounded, senders, receivers):
    x, total = apply(model.input.features, x), 0.0
    for layer in model.local:
        if layer.before is not None:
            x = normed(layer.before, x)
        mixed = dense_conv("gat", layer.attention, x, edge_x, senders, receivers)
        mixed = relu(mixed + apply(layer.own, x))
        gated = normed(layer.norm, relu(apply(layer.gate, x)) * mixed)
        x = (1 - share(layer, bounded)) * gated + share(layer, bounded) * mixed
        total = total + x
    if not len(model.everywhere):
        return total
    x = normed(model.norm, total)
    for layer in model.everywhere:
        key, value = sigmoid(by_head(apply(layer.key, x))), by_head(apply(layer.value, x))
        weights = np.einsum("nhd,mhd->nmh", key, key)
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("nmh,mhd->nhd", weights, value).reshape(x.shape)
        gate = apply(layer.gate, x) + share(layer, bounded)
        x = relu(apply(model.out, normed(layer.norm, mixed) * gate))
    return x


def dense_sgformer(model, x, senders, receivers):
    local = x
    for layer in model.stack.layers:
        local = dense_conv("gcn", layer.conv, local, None, senders, receivers)
        local = relu(normed(layer.norm, local))
    x = relu(normed(model.norm, apply(model.input, x)))
    for layer in model.everywhere:
        q, k, v = (
            apply(each, x).reshape(NODES, HEADS, -1)
            for each in (layer.query, layer.key, layer.value)
        )
        q, k = q / np.linalg.norm(q), k / np.linalg.norm(k)
        weights = np.einsum("nhd,mhd->nmh", q, k) + NODES * np.eye(NODES)[:, :, None]
        weights /= weights.sum(axis=1, keepdims=True)
        out = np.einsum("nmh,mhd->nhd", weights, v).mean(axis=1)
        x = normed(layer.norm, (out + x) / 2)
    return 0.8 * local + 0.2 * x


def dense_gps(model, x, edge_x, senders, receivers):
    x = apply(model.input.features, x)
    for layer in model.layers:
        local = dense_conv(layer.config.local, layer.local, x, edge_x, senders, receivers)
        q, k = (sigmoid(by_head(apply(each, x))) for each in (layer.query, layer.key))
        weights = np.einsum("nhd,mhd->nmh", q, k)
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("nmh,mhd->nhd", weights, by_head(apply(layer.value, x)))
        mixed = apply(layer.mix, mixed.reshape(x.shape))
        h = over_nodes(layer.local_norm, x + local) + over_nodes(layer.global_norm, x + mixed)
        x = over_nodes(layer.norm, h + apply(layer.down, relu(apply(layer.up, h))))
    return x


def over_nodes(norm, x):
    x = x - x.mean(axis=0)
    return x / np.sqrt(np.square(x).mean(axis=0) + 1e-5) * number(norm.scale) + number(norm.bias)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(4)
    return rng.standard_normal((NODES, FEATURES)), rng.standard_normal((90, EDGE_FEATURES))


@pytest.mark.parametrize(
    "changes",
    [
        {"global_layers": 2},
        {"global_layers": 1, "beta": 0.1, "pre_norm": True},
        {"global_layers": 0},
    ],
)
def test_polynormer_is_its_definition(changes, rows, edges):
    model = made("polynormer", **changes)
    got = ran(model, *rows, LocalNeighbours(*edges, NODES))
    want = dense_polynormer(model, *rows, changes.get("beta", -1) < 0, *edges)
    np.testing.assert_allclose(got, want, atol=2e-5 * max(1, np.abs(want).max()))


def test_sgformer_is_its_definition(rows, edges):
    model = made("sgformer", global_layers=2)
    got = ran(model, *rows, LocalNeighbours(*edges, NODES))
    np.testing.assert_allclose(got, dense_sgformer(model, rows[0], *edges), atol=2e-5)


@pytest.mark.parametrize("local", [*map(slow, ("gcn", "sage", "gin")), "gat"])
def test_gps_is_its_definition(local, rows, edges):
    model = made("gps", local=local)
    got = ran(model, *rows, LocalNeighbours(*edges, NODES))
    np.testing.assert_allclose(got, dense_gps(model, *rows, *edges), atol=2e-5)


@pytest.mark.parametrize("name", ["polynormer", "sgformer", "gps"])
def test_padding_changes_nothing(name, rows, edges):
    x, edge_x = rows
    model, more = made(name), np.full((4, FEATURES), 7.0)
    alone = ran(model, x, edge_x, LocalNeighbours(*edges, NODES))
    padded = LocalNeighbours(*edges, NODES + 4)
    valid_n = jnp.arange(NODES + 4) < NODES
    got = ran(model, np.concatenate([x, more]), edge_x, padded, valid_n=valid_n)
    np.testing.assert_allclose(got[:NODES], alone, atol=2e-6)


def test_parameters_are_those_of_the_definition():
    d, f, e, h = HIDDEN, FEATURES, EDGE_FEATURES, HEADS
    square, norm = d * d + d, 2 * d

    def count(name, **changes):
        return sum(p.size for p in jax.tree.leaves(nnx.state(made(name, **changes), nnx.Param)))

    local = 2 * square + (d * d + 2 * d + e * h) + norm + d
    everywhere = 3 * square + norm + d
    first = f * d + d
    assert count("polynormer", global_layers=0) == first + 2 * local
    assert count("polynormer", global_layers=2) == first + 2 * (local + everywhere) + norm + square
    gcn = (f * d + d + norm) + (square + norm)
    block = 4 * square + 2 * d * 2 * d + 3 * d + 3 * norm
    assert count("gps", local="gat") == first + 2 * (block + d * d + 2 * d + e * h + d)
    assert count("sgformer") == first + norm + 3 * (d * h * d + h * d) + norm + gcn


def test_what_mixes_all_nodes_is_named():
    assert couples_nodes(MODELS["polynormer"].config()) == "--model.global-layers 1"
    assert couples_nodes(MODELS["polynormer"].config(global_layers=0)) is None
    assert couples_nodes(MODELS["sgformer"].config()) == "--model.global-layers 1"
    assert couples_nodes(MODELS["gps"].config(norm="layer")) == "--model gps"

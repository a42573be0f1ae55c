"""The transformer and the decoupled one against dense float64 with every weight written out."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import Sizes
from gtjax.nn.models import MODELS
from tests.marks import slow
from tests.nn.local import LocalNeighbours
from tests.nn.test_global_models import by_head, normed, ran, sigmoid
from tests.nn.test_models import NODES, apply, attended

FEATURES, EDGE_FEATURES, HIDDEN, HEADS, LAYERS = 5, 2, 8, 2, 2


def made(name, **changes):
    config = MODELS[name].config(hidden=HIDDEN, layers=LAYERS, heads=HEADS, **changes)
    model = MODELS[name].make(config, Sizes(FEATURES, EDGE_FEATURES), rngs=nnx.Rngs(params=1))
    graphdef, params = nnx.split(model)
    rng = np.random.default_rng(5)  # so that vectors that start as zeros or ones count
    moved = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype("f"), params)
    return nnx.merge(graphdef, moved)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(q, k, v, bias, senders, receivers):
    logits = (q[receivers] * k[senders]).sum(axis=-1) / math.sqrt(q.shape[-1]) + bias
    return attended(logits, v[senders], receivers)


def dense_transformer(model, x, edge_x, senders, receivers):
    x = apply(model.input.features, x)
    for block in model.blocks:
        h = normed(block.norm, x)
        q, k, v = map(by_head, np.split(apply(block.attention.qkv, h), 3, axis=1))
        bias = apply(block.attention.bias.weights, edge_x)
        change = apply(block.attention.out, attention(q, k, v, bias, senders, receivers))
        if block.everywhere is not None:
            q, k, v = map(by_head, np.split(apply(block.everywhere.qkv, h), 3, axis=1))
            weights = np.einsum("nhd,mhd->nmh", sigmoid(q), sigmoid(k))
            weights /= weights.sum(axis=1, keepdims=True)
            mixed = np.einsum("nmh,mhd->nhd", weights, v).reshape(x.shape)
            change = change + apply(block.everywhere.out, mixed)
        x = x + change
        wide = apply(block.feed_forward.up, normed(block.feed_forward.norm, x))
        x = x + apply(block.feed_forward.down, gelu(wide))
    return normed(model.output_norm, x)


def dense_decoupled(model, x, edge_x, senders, receivers):
    h = gelu(normed(model.norm, apply(model.input.features, x)))
    root = np.sqrt(np.maximum(np.bincount(receivers, minlength=NODES), 1))[:, None]
    q, k = map(by_head, np.split(apply(model.query_key, h), 2, axis=1))
    bias, start = apply(model.bias.weights, edge_x), h / root
    value = start
    for _ in range(LAYERS):
        mixed = attention(q, k, by_head(value), bias, senders, receivers)
        value = (1 - model.config.restart) * mixed + model.config.restart * start
    return value * root


@pytest.mark.parametrize(
    ("name", "changes"),
    [("transformer", {"global_attention": True}), slow("transformer", {}), ("decoupled", {})],
)
def test_a_forward_pass_is_the_definition_in_float64(name, changes, edges):
    rng = np.random.default_rng(4)
    x, edge_x = rng.standard_normal((NODES, FEATURES)), rng.standard_normal((90, EDGE_FEATURES))
    model = made(name, **changes)
    got = ran(model, x, edge_x, LocalNeighbours(*edges, NODES))
    dense = {"transformer": dense_transformer, "decoupled": dense_decoupled}[name]
    np.testing.assert_allclose(got, dense(model, x, edge_x, *edges), atol=2e-5)


def test_parameters_are_those_of_the_definition():
    d, f, e, h = HIDDEN, FEATURES, EDGE_FEATURES, HEADS
    square, norm, bias = d * d + d, 2 * d, e * h + h

    def count(name, **changes):
        return sum(p.size for p in jax.tree.leaves(nnx.state(made(name, **changes), nnx.Param)))

    first, wide = f * d + d, 2 * (2 * d * d) + 3 * d
    block = norm + 4 * square + bias + norm + wide
    assert count("transformer") == first + LAYERS * block + norm
    assert count("transformer", global_attention=True) == (
        first + LAYERS * (block + 4 * square) + norm
    )
    assert count("transformer", feed_forward=0.0) == first + LAYERS * (block - norm - wide) + norm
    assert count("decoupled") == first + norm + 2 * square + bias

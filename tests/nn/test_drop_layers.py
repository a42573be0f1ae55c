"""Stochastic depth: a branch is there for all nodes or for none, and on average as it was."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import GCNConfig, GraphTransformer, Inputs, Sizes, TransformerConfig
from gtjax.nn.noise import Noise
from tests.nn.local import LocalNeighbours
from tests.nn.test_models import (
    FEATURES,
    NODES,
    apply,
    dense_conv,
    made,
    normalised,
    relu,
)

RATE = 0.6


def factors(key, rates):
    """What branches are multiplied by, in the order in which they are drawn."""
    noise = Noise(key)
    return [float(noise.drop_branch(jnp.ones((1, 1)), rate)[0, 0]) for rate in rates]


def test_a_branch_is_all_or_nothing_and_keeps_its_mean():
    drawn = np.array([factors(jax.random.key(k), [RATE])[0] for k in range(400)])
    kept = drawn > 0
    np.testing.assert_allclose(drawn[kept], 1 / (1 - RATE), rtol=1e-6)
    assert abs(kept.mean() - (1 - RATE)) < 0.08
    change_nf = jnp.ones((5, 3))
    assert Noise(None).drop_branch(change_nf, RATE) is change_nf
    assert Noise(jax.random.key(0)).drop_branch(change_nf, 0.0) is change_nf


@pytest.mark.parametrize("key", [0, 1, 2])
def test_a_stack_leaves_out_convolutions_and_keeps_residuals(key, edges):
    model = made("gcn", residual=True, dropout=0.0, drop_layers=RATE)
    x = np.random.default_rng(4).standard_normal((NODES, FEATURES))
    inputs = Inputs(jnp.asarray(x, jnp.float32)).live(jax.random.key(key))
    got = model(inputs, LocalNeighbours(*edges, NODES))
    want, layers = x, model.stack.layers
    drawn = factors(jax.random.key(key), [RATE / 2, RATE])  # the first layer of two less often
    for factor, layer in zip(drawn, layers, strict=True):
        out = factor * dense_conv("gcn", layer.conv, want, None, *edges) + apply(
            layer.residual, want
        )
        want = relu(normalised("layer", out))
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_a_transformer_leaves_out_branches(edges):
    config = TransformerConfig(8, 2, 2, dropout=0.0, norm="none", drop_layers=RATE)
    model = GraphTransformer(config, Sizes(FEATURES), rngs=nnx.Rngs(params=1))
    x_nf = jnp.asarray(np.random.default_rng(4).standard_normal((NODES, FEATURES)), jnp.float32)
    seen = {}

    key, branches = jax.random.key(5), ("attention", "feed-forward")
    got = model(Inputs(x_nf).live(key, seen.__setitem__), LocalNeighbours(*edges, NODES))
    drawn = factors(key, [RATE / 2, RATE / 2, RATE, RATE])
    assert len(set(drawn)) == 3  # left out, and kept in either block
    names = [f"blocks.{number}.{branch}" for number in range(2) for branch in branches]
    changes = (f * seen[name] for f, name in zip(drawn, names, strict=True))
    np.testing.assert_allclose(got, seen["input"] + sum(changes), atol=1e-5)


def test_without_a_residual_nothing_would_be_left():
    with pytest.raises(ValueError, match=r"Use --model.residual"):
        GCNConfig(drop_layers=0.2)

"""GRAND against dense float64: powers of the adjacency, DropNode, and what comes after."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.nn import GRAND, GRANDConfig, Inputs, Sizes
from gtjax.nn.noise import Noise
from gtjax.sharding.recording import RecordingNeighbours
from tests.nn.local import LocalNeighbours
from tests.nn.test_models import normalised, relu

NODES, FEATURES, ROUNDS, RATE = 23, 5, 3, 0.4
NARROW, WIDE = 2, 8  # against the features: the matrix goes first where it makes rows narrower
PADDED = 8  # the features, to be divided by strategies
KEY = jax.random.key(3)


def made(hidden, **changes):
    config = GRANDConfig(hidden, ROUNDS, RATE, **changes)
    model = GRAND(config, Sizes(FEATURES), rngs=nnx.Rngs(params=1))
    model.bias[...] += jnp.linspace(-0.3, 0.5, hidden)
    return model


def number(param):
    return np.asarray(param[...], np.float64)


def propagated(x, senders, receivers):
    """The mean of powers 0..K, each a dense matrix."""
    adjacency = np.zeros((NODES, NODES))
    np.add.at(adjacency, (receivers, senders), 1.0)
    degree = adjacency.sum(axis=1)
    root = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0)
    symmetric = root[:, None] * adjacency * root
    powers = [np.linalg.matrix_power(symmetric, k) for k in range(ROUNDS + 1)]
    return sum(powers) @ x / (ROUNDS + 1)


def hidden_of(model, x_nf):
    return relu(x_nf @ number(model.linear.kernel) + number(model.bias))


def kept_nodes(ids_n):
    """The rows that the first draw of a pass keeps."""
    return np.asarray(Noise(KEY, ids_n).drop_nodes(jnp.ones((NODES, 1)), RATE), np.float64)


@pytest.fixture(scope="module")
def x_nf():
    return np.random.default_rng(4).standard_normal((NODES, FEATURES))


@pytest.mark.parametrize("hidden", [NARROW, WIDE])
def test_evaluation_scales_features_down_and_drops_nothing(hidden, x_nf, edges):
    model = made(hidden)
    got = model(Inputs(jnp.asarray(x_nf, jnp.float32)), LocalNeighbours(*edges, NODES))
    want = hidden_of(model, propagated((1 - RATE) * x_nf, *edges))
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("hidden", [NARROW, WIDE])
def test_training_drops_whole_nodes_before_they_spread(hidden, x_nf, edges):
    model = made(hidden, input_dropout=0)
    ids_n = jnp.arange(NODES, dtype=jnp.uint32)[::-1]
    inputs = Inputs(jnp.asarray(x_nf, jnp.float32), node_ids_n=ids_n).live(KEY)
    got = model(inputs, LocalNeighbours(*edges, NODES))
    kept_n1 = kept_nodes(ids_n)
    assert set(np.unique(kept_n1)) == {0.0, 1.0}  # and nothing is scaled up
    np.testing.assert_allclose(got, hidden_of(model, propagated(kept_n1 * x_nf, *edges)), atol=2e-6)


@pytest.mark.parametrize("hidden", [NARROW, WIDE])
def test_features_may_be_dropped_before_they_spread(hidden, x_nf, edges):
    model = made(hidden, feature_dropout=0.3, input_dropout=0)
    x_nf, ids_n = jnp.asarray(x_nf, jnp.float32), jnp.arange(NODES, dtype=jnp.uint32)
    got = model(Inputs(x_nf, node_ids_n=ids_n).live(KEY), LocalNeighbours(*edges, NODES))
    noise = Noise(KEY, ids_n)
    dropped_nf = noise.drop_nodes(noise.drop(x_nf, 0.3), RATE)
    want = hidden_of(model, propagated(np.asarray(dropped_nf, np.float64), *edges))
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_normalisation_comes_before_each_dense_layer(x_nf, edges):
    model = made(NARROW, norm="batch")
    got = model(Inputs(jnp.asarray(x_nf, jnp.float32)), LocalNeighbours(*edges, NODES))
    x = normalised("batch", propagated((1 - RATE) * x_nf, *edges))
    np.testing.assert_allclose(got, normalised("batch", hidden_of(model, x)), atol=2e-5)


def test_a_node_is_dropped_wherever_it_stands_and_as_often_as_asked():
    ids_n = jnp.arange(5000, dtype=jnp.uint32)
    kept_n = Noise(KEY, ids_n).drop_nodes(jnp.ones((5000, 3)), RATE)
    turned_n = Noise(KEY, ids_n[::-1]).drop_nodes(jnp.ones((5000, 3)), RATE)
    np.testing.assert_array_equal(kept_n, turned_n[::-1])
    assert abs(float(kept_n.mean()) - (1 - RATE)) < 0.02
    noise = Noise(KEY, ids_n)
    first, second = (noise.drop_nodes(jnp.ones((5000, 1)), RATE) for _ in range(2))
    assert (first != second).any()


def test_edges_carry_narrow_rows_where_the_order_does_not_matter():
    def widths(key, **changes):
        calls = []

        def run():
            inputs = Inputs(jnp.ones((6, FEATURES))).live(key)
            return made(NARROW, **changes)(inputs, RecordingNeighbours(jnp.ones(6), calls))

        jax.eval_shape(run)
        return [call.work.width for call in calls]

    assert widths(None) == [NARROW] * ROUNDS
    assert widths(KEY, input_dropout=0) == [NARROW] * ROUNDS
    assert widths(KEY, input_dropout=0, feature_dropout=0.5) == [NARROW] * ROUNDS
    assert widths(KEY) == [PADDED] * ROUNDS
    assert widths(None, norm="layer") == [PADDED] * ROUNDS


def test_parameters_are_those_of_the_definition():
    def count(**changes):
        return sum(p.size for p in jax.tree.leaves(nnx.state(made(WIDE, **changes), nnx.Param)))

    assert count() == FEATURES * WIDE + WIDE
    assert count(norm="batch") == FEATURES * WIDE + WIDE + 2 * (FEATURES + WIDE)

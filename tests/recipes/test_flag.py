"""FLAG against its algorithm in float64, on a loss whose gradients are written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.nn import Inputs
from gtjax.recipes.flag import Flag

NODES, FEATURES, STEPS, SIZE, FURTHER = 11, 4, 3, 0.05, 2.0
KEY = jax.random.key(2)
RNG = np.random.default_rng(3)
X, W, Y = RNG.standard_normal((NODES, FEATURES)), RNG.standard_normal(FEATURES), RNG.random(NODES)
TRAIN = np.arange(NODES) % 3 == 0
INPUTS = Inputs(
    jnp.asarray(X, jnp.float32),
    valid_n=jnp.ones(NODES, bool),
    node_ids_n=jnp.arange(NODES, dtype=jnp.uint32),
)
TARGETS = {"train": jnp.asarray(TRAIN)}


def loss(params, inputs, key):
    del key
    return jnp.square(inputs.x_nf @ params["w"] - jnp.asarray(Y, jnp.float32)).mean()


def first(flag):
    return np.asarray(flag._first(INPUTS, KEY), np.float64)


def test_gradients_at_features_that_climb_are_averaged():
    flag = Flag(STEPS, SIZE, FURTHER)
    params = {"w": jnp.asarray(W, jnp.float32)}
    value, grads = jax.jit(flag.gradient(loss, TARGETS))(params, INPUTS, KEY)
    size = np.where(TRAIN, SIZE, FURTHER * SIZE)[:, None]
    move, losses, wanted = size * first(flag), [], np.zeros(FEATURES)
    for _ in range(STEPS):
        error = (X + move) @ W - Y
        losses.append(np.mean(error**2))
        wanted += 2 * (X + move).T @ error / NODES / STEPS
        move = move + size * np.sign(np.outer(error, W))
    np.testing.assert_allclose(value, np.mean(losses), rtol=1e-5)
    np.testing.assert_allclose(grads["w"], wanted, rtol=1e-5)
    assert losses[0] < losses[1] < losses[2]  # it does climb


def test_the_first_move_is_uniform_and_each_nodes_own():
    flag = Flag(STEPS, SIZE, 1.0)
    many = Inputs(jnp.zeros((2000, 5)), node_ids_n=jnp.arange(2000, dtype=jnp.uint32))
    drawn = np.asarray(flag._first(many, KEY))
    assert drawn.min() >= -1
    assert drawn.max() < 1
    np.testing.assert_allclose(np.histogram(drawn, 10, (-1, 1))[0] / 1000, 1, atol=0.15)
    turned = many._replace(node_ids_n=many.node_ids_n[::-1])
    np.testing.assert_array_equal(flag._first(turned, KEY)[::-1], drawn)
    assert (flag._first(many, jax.random.key(9)) != drawn).mean() > 0.99


def test_padding_is_not_moved():
    valid_n = jnp.arange(NODES) < 9
    size_n1 = Flag(STEPS, SIZE, FURTHER)._sizes(INPUTS._replace(valid_n=valid_n), TARGETS)
    assert (np.asarray(size_n1[9:]) == 0).all()


def test_every_pass_draws_anew():
    seen = []

    def noted(params, inputs, key):
        jax.debug.callback(lambda bits: seen.append(int(bits)), jax.random.bits(key))
        return loss(params, inputs, key)

    Flag(STEPS, SIZE, 1.0).gradient(noted, TARGETS)({"w": jnp.asarray(W)}, INPUTS, KEY)
    jax.effects_barrier()
    assert len(set(seen)) == STEPS

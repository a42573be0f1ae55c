"""The optimiser: what decays, how large its steps are, and what torch's Adam would do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.runs.config import OptimConfig
from gtjax.runs.optimiser import WATCHED, make_optimiser


def test_only_matrices_decay():
    params = {"matrix": jnp.ones((2, 3)), "vector": jnp.ones(3), "number": jnp.ones(())}
    optimiser = make_optimiser(OptimConfig(weight_decay=0.1, learning_rate=0.5, warmup=0), 10)
    nothing = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimiser.update(nothing, optimiser.init(params), params, value=0.0)
    np.testing.assert_allclose(updates["matrix"], -0.05, rtol=1e-6)
    assert (updates["vector"] == 0).all()
    assert updates["number"] == 0


def sizes_of_steps(steps, **changes):
    """With a constant gradient Adam moves by the step size, whatever the gradient."""
    optimiser = make_optimiser(OptimConfig(weight_decay=0, learning_rate=0.5, **changes), steps)
    params = jnp.zeros(1)
    state, sizes = optimiser.init(params), []
    for _ in range(steps):
        update, state = optimiser.update(jnp.ones(1), state, params)
        sizes.append(-float(update[0]))
    return np.array(sizes)


def test_the_step_size_rises_then_follows_the_cosine():
    rise = 0.5 * np.array([1, 2, 3, 4]) / 4
    fall = 0.25 * (1 + np.cos(np.pi * np.arange(1, 7) / 7))
    sizes = sizes_of_steps(10, warmup=3)
    np.testing.assert_allclose(sizes, [*rise, *fall], rtol=1e-4)


def test_a_constant_step_size_stays():
    sizes = sizes_of_steps(6, warmup=0, schedule="constant")
    np.testing.assert_allclose(sizes, 0.5, rtol=1e-4)


def test_warming_up_takes_at_most_half_of_a_short_run():
    sizes = sizes_of_steps(4, warmup=100, schedule="constant")
    np.testing.assert_allclose(sizes, [0.5 / 3, 1 / 3, 0.5, 0.5], rtol=1e-4)


def test_long_gradients_are_clipped_and_short_ones_are_not():
    def given_to_adam(gradient, clip):
        optimiser = make_optimiser(OptimConfig(clip=clip), 10)
        _, state = optimiser.update(gradient, optimiser.init(gradient), gradient)
        first_moment = next(leaf for leaf in jax.tree.leaves(state) if leaf.shape == (2,))
        return np.asarray(first_moment) * 10  # Adam takes a tenth of the first gradient

    long, short = jnp.array([30.0, 40.0]), jnp.array([0.3, 0.4])
    np.testing.assert_allclose(given_to_adam(long, 1.0), [0.6, 0.8], rtol=1e-5)
    np.testing.assert_allclose(given_to_adam(short, 1.0), short, rtol=1e-5)
    np.testing.assert_allclose(given_to_adam(long, 0.0), long, rtol=1e-5)


def adam_with_l2(gradient_of, start, rate, l2, steps):
    """Adam (Kingma and Ba 2015) on the gradient plus l2 times the parameter, by its formulas."""
    x = np.asarray(start, np.float64)
    m, v = np.zeros_like(x), np.zeros_like(x)
    for t in range(1, steps + 1):
        g = gradient_of(x) + l2 * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        x = x - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return x


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_coupled_decay_of_vectors_too_is_adam_with_l2(l2):
    plain = {"schedule": "constant", "warmup": 0, "clip": 0, "decay": "coupled"}
    optimiser = make_optimiser(OptimConfig(learning_rate=0.05, weight_decay=l2, **plain), 20)
    start = {"matrix": np.array([[1.0, -2.0], [0.5, 3.0]]), "vector": np.array([0.1, -4.0])}
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), start)
    state = optimiser.init(params)
    for _ in range(20):
        grads = jax.tree.map(lambda x: jnp.sin(3 * x) + 0.1, params)
        updates, state = optimiser.update(grads, state, params, value=0.0)
        params = jax.tree.map(jnp.add, params, updates)
    for name, x in start.items():
        wanted = adam_with_l2(lambda x: np.sin(3 * x) + 0.1, x, 0.05, l2, 20)
        np.testing.assert_allclose(params[name], wanted, rtol=1e-5, atol=2e-5)  # float32


def test_the_step_size_shrinks_once_the_loss_stops_falling():
    plain = {"schedule": "plateau", "warmup": 0, "weight_decay": 0, "learning_rate": 0.5}
    optimiser = make_optimiser(OptimConfig(plateau_steps=20, plateau_factor=0.1, **plain), 100)
    params = jnp.zeros(1)
    falling = 2.0 ** -np.arange(4 * WATCHED)
    noisy = falling[-1] + 0.1 * (np.arange(4 * WATCHED) % 2)  # no better than it has been
    state, sizes = optimiser.init(params), []
    for loss in [*falling, *noisy]:
        update, state = optimiser.update(jnp.ones(1), state, params, value=loss)
        sizes.append(-float(update[0]))
    # It shrinks with the last step of the second mean in a row that is no better.
    wanted = [0.5] * (4 * WATCHED + 19) + [0.05] * 20 + [0.005]
    np.testing.assert_allclose(sizes, wanted, rtol=1e-4)

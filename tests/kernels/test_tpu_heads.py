"""Sums over the channels of heads, in three passes of bfloat16, lose none of float32's bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.passes.tpu_heads import (
    exact_dot,
    lanes_of_heads,
    sum_of_heads,
    to_channels,
    unit,
)
from pallas_kernels.passes.tpu_tables import Heads


def numbers(rows, lanes):
    """Of all sizes, with all bits in use, and some special ones."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, lanes)) * 10.0 ** rng.integers(-20, 20, (rows, lanes))
    x[0, :4] = [0.0, -0.0, 1 + 2.0**-23, 2.0**24 - 1]
    return x.astype(np.float32)


@pytest.mark.parametrize("first", [True, False])
def test_a_product_with_one_one_a_column_gives_every_bit(first):
    x = numbers(32, 128)

    def product(x):  # compiled, since a compiler may take roundings for nothing
        return exact_dot(x, unit(128), 1, 1) if first else exact_dot(unit(128), x, 1, 1).T

    np.testing.assert_array_equal(jax.jit(product)(x), x)


def test_two_passes_would_not_do():
    x = numbers(32, 128)
    high = np.asarray(jnp.asarray(x).astype(jnp.bfloat16), np.float32)
    low = np.asarray(jnp.asarray(x - high).astype(jnp.bfloat16), np.float32)
    assert not np.array_equal(high.astype(np.float64) + low, x)


@pytest.mark.parametrize(("heads", "width"), [(8, 16), (3, 8), (2, 100), (1, 256)])
def test_sums_and_their_gradients(heads, width):
    group, rng = Heads(0, heads, width), np.random.default_rng(1)
    x_rhd = rng.standard_normal((8, heads, width)).astype(np.float32)
    flat, of_head = group.flat(jnp.asarray(x_rhd)), lanes_of_heads(group)
    total, pull = jax.vjp(lambda x: sum_of_heads(group, x, of_head), flat)
    want = x_rhd.astype(np.float64).sum(axis=-1)
    np.testing.assert_allclose(total[:, :heads], want, rtol=1e-6, atol=1e-5)
    d = jnp.asarray(rng.standard_normal(total.shape).astype(np.float32))
    there = np.repeat(np.asarray(d)[:, :heads], width, axis=1)
    np.testing.assert_array_equal(pull(d)[0][:, : heads * width], there)
    np.testing.assert_array_equal(pull(d)[0][:, heads * width :], 0)
    spread, pull = jax.vjp(lambda x: to_channels(group, x, of_head), d)
    np.testing.assert_array_equal(spread[:, : heads * width], there)
    np.testing.assert_allclose(pull(flat)[0][:, :heads], want, rtol=1e-6, atol=1e-5)

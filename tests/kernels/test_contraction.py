"""Contracted arithmetic computes the same numbers, in the instructions that it is for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.passes.contraction import Arithmetic, contracted


def blocks(*shapes, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


A, B, C = blocks((2, 3, 16), (2, 3, 16), (2, 3, 16))
(NUMBERS,) = blocks((2, 3))

# What is computed, and the multiply-adds and exponentials that it takes a lane.
FUNCTIONS = {
    "sum of product and number": (lambda: A * B + C, 1, 0),
    "number and product": (lambda: C + A * B, 1, 0),
    "product less number": (lambda: A * B - C, 1, 0),
    "number less product": (lambda: C - A * B, 1, 0),
    "product with a number of heads": (lambda: C + NUMBERS[:, :, None] * A, 1, 0),
    "product with a constant": (lambda: C + 2.5 * A, 1, 0),
    "within a jitted function": (lambda: jax.jit(lambda x: x * B + C)(A), 1, 0),
    "sum of products": (lambda: (A * B).sum(axis=-1), 3, 0),
    "sum": (lambda: A.sum(axis=-1), 0, 0),
    "powers of e": (lambda: jnp.exp(NUMBERS), 0, 1),
    "powers of e of differences": (lambda: jnp.exp(A - B), 1, 1),
    "powers of 2": (lambda: jnp.exp2(NUMBERS), 0, 1),
    "relu": (lambda: jax.nn.relu(A) * B + C, 1, 0),
    "whole numbers": (lambda: jnp.arange(3) * 2 + 1, 0, 0),
    "a gradient": (lambda: C + jax.grad(lambda a: (a * B).sum())(A) * A, 1, 0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_the_same_and_so_many_instructions_are_used(name):
    function, multiply_adds, exponentials = FUNCTIONS[name]
    found = contracted(function, Arithmetic(4, interpret=True))
    np.testing.assert_allclose(found, function(), rtol=2e-6, atol=2e-6)
    text = str(jax.make_jaxpr(lambda: contracted(function, Arithmetic(4)))())
    assert text.count("fma.rn.f32") == multiply_adds
    assert text.count("ex2.approx.ftz.f32") == exponentials


def test_trees_and_several_results_come_back_as_they_were():
    found = contracted(lambda: {"a": A * B + C, "b": (A, 2)}, Arithmetic(1, interpret=True))
    assert jax.tree.structure(found) == jax.tree.structure({"a": 0, "b": (0, 0)})
    np.testing.assert_array_equal(found["b"][0], A)

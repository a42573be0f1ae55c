"""Products of sparse rows with a matrix, and the matrix's gradient, against dense float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels import build_edges, sparse_product
from tests.marks import slow


def awkward(rows: int, columns: int, filled: float) -> np.ndarray:
    """Empty rows and columns, a full row and a full column, numbers of both signs."""
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < filled)
    x[rows // 2], x[:, columns // 3] = rng.standard_normal(columns), rng.standard_normal(rows)
    x[::5], x[:, ::4] = 0, 0
    return x.astype(np.float32)


def edges_of(x: np.ndarray):
    row_e, column_e = np.nonzero(x)
    sizes = {"num_senders": x.shape[1], "num_receivers": x.shape[0]}
    edges = build_edges(column_e, row_e, **sizes)
    return jnp.asarray(x[row_e, column_e]), jax.tree.map(jnp.asarray, edges)


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        ((211, 1499, 13), "cpu"),
        ((1009, 89, 64), "cpu"),
        ((7, 3, 1), "cpu"),
        ((61, 83, 5), "xla"),
        slow((211, 1499, 13), "xla"),
        slow((1009, 89, 64), "xla"),
    ],
)
def test_values_and_gradients_are_those_of_dense_rows(shape, kernel):
    rows, columns, outputs = shape
    x = awkward(rows, columns, 0.02)
    value_e, edges = edges_of(x)
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((columns, outputs)).astype(np.float32)
    dout = rng.standard_normal((rows, outputs)).astype(np.float32)
    out, pull = jax.vjp(
        lambda matrix: sparse_product(value_e, matrix, edges, kernel=kernel), jnp.asarray(matrix)
    )
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out, wide @ matrix, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(pull(jnp.asarray(dout))[0], wide.T @ dout, rtol=1e-5, atol=2e-5)
    assert not np.asarray(out)[::5].any()


@pytest.mark.parametrize("kernel", ["cpu", "xla"])
def test_rows_without_any_value_give_zeros(kernel):
    value_e, edges = edges_of(np.zeros((5, 3), np.float32))

    def total(matrix):
        return sparse_product(value_e, matrix, edges, kernel=kernel).sum()

    value, gradient = jax.value_and_grad(total)(jnp.ones((3, 2)))
    assert value == 0
    assert not np.asarray(gradient).any()


def test_sums_of_bfloat16_rows_are_float32():
    x = np.ones((1, 1000), np.float32)
    value_e, edges = edges_of(x)
    matrix = jnp.ones((1000, 8), jnp.bfloat16)
    out = sparse_product(value_e.astype(jnp.bfloat16), matrix, edges)
    assert out.dtype == jnp.float32
    assert (out == 1000).all()  # bfloat16 cannot count beyond 256


def test_a_place_given_twice_counts_as_the_sum():
    edges = build_edges([1, 1], [0, 0], num_senders=2, num_receivers=1)
    out = sparse_product(jnp.array([2.0, 3.0]), jnp.array([[1.0], [10.0]]), edges)
    assert float(out[0, 0]) == 50


def test_a_gradient_of_the_values_is_refused():
    value_e, edges = edges_of(awkward(7, 5, 0.3))
    matrix = jnp.ones((5, 2))
    with pytest.raises(ValueError, match="no gradient"):
        jax.grad(lambda value_e: sparse_product(value_e, matrix, edges).sum())(value_e)


@pytest.mark.parametrize("own", [True, False], ids=["own values", "same values"])
def test_several_matrices_side_by_side_are_each_by_itself(own):
    """Seeds under `vmap`: with dropout each has values of its own."""
    x = awkward(23, 31, 0.2)
    value_e, edges = edges_of(x)
    factor_s = np.arange(1.0, 4.0, dtype=np.float32) if own else np.ones(3, np.float32)
    matrix_sfo = np.random.default_rng(0).standard_normal((3, 31, 5)).astype(np.float32)
    values = value_e * factor_s[:, None] if own else value_e

    def total(value_e, matrix):
        return jnp.square(sparse_product(value_e, matrix, edges, kernel="cpu")).sum()

    take = jax.value_and_grad(total, argnums=1)
    found, gradients = jax.vmap(take, in_axes=(0 if own else None, 0))(values, matrix_sfo)
    for factor, matrix, value, gradient in zip(factor_s, matrix_sfo, found, gradients, strict=True):
        out = factor * x.astype(np.float64) @ matrix
        np.testing.assert_allclose(value, np.square(out).sum(), rtol=1e-5)
        np.testing.assert_allclose(gradient, 2 * factor * x.T @ out, rtol=1e-4, atol=1e-3)

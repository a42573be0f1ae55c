"""Normalisation with gradients written out is what JAX makes of the plain formula."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gtjax.nn.norm import make_norm

NODES, WIDTH = 101, 7


def plain(x_nf, scale_f, bias_f, valid_n):
    """Ioffe and Szegedy 2015, over the rows that are nodes."""
    where = valid_n[:, None]
    mean_f = x_nf.mean(axis=0, where=where)
    variance_f = jnp.square(x_nf - mean_f).mean(axis=0, where=where)
    return (x_nf - mean_f) / jnp.sqrt(variance_f + 1e-5) * scale_f + bias_f


@pytest.mark.parametrize("padding", [0, 13])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_batch_norm_and_its_gradients_are_those_of_the_formula_in_float64(padding, offset):
    rng = np.random.default_rng(0)
    x_nf = rng.normal(offset, 2.0, (NODES, WIDTH))
    valid_n = np.arange(NODES) < NODES - padding
    scale_f, bias_f = rng.normal(1.0, 0.3, WIDTH), rng.normal(size=WIDTH)
    pull_nf = rng.normal(size=(NODES, WIDTH))  # rows of padding too: their gradient is not zero
    graph, state = nnx.split(make_norm("batch", WIDTH, rngs=nnx.Rngs(0)))
    names = jax.tree.structure(state)

    def written_out(x_nf, scale_f, bias_f):
        norm = nnx.merge(graph, jax.tree.unflatten(names, [bias_f, scale_f]))
        return norm(x_nf, jnp.asarray(valid_n) if padding else None)

    given = tuple(np.float32(each) for each in (x_nf, scale_f, bias_f))
    found = jax.vjp(written_out, *given)
    grads = found[1](np.float32(pull_nf))
    with jax.enable_x64(True):
        wanted = jax.vjp(lambda *a: plain(*a, jnp.asarray(valid_n)), *map(np.float64, given))
        wanted_grads = wanted[1](pull_nf)
    np.testing.assert_allclose(found[0], wanted[0], rtol=2e-5, atol=5e-5)
    for each, other in zip(grads, wanted_grads, strict=True):
        np.testing.assert_allclose(each, other, rtol=2e-4, atol=2e-4)


def test_batch_norm_of_no_nodes_at_all_is_finite():
    norm = make_norm("batch", WIDTH, rngs=nnx.Rngs(0))
    assert np.isfinite(norm(jnp.ones((5, WIDTH)), jnp.zeros(5, bool))).all()

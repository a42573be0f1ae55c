"""Streams that count in Python give what those of nnx give."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gtjax.nn.streams import Streams


def drawn(rngs):
    """Four keys, in order, as numbers."""
    return [jax.random.key_data(rngs.params()) for _ in range(4)]


def keys(rngs):
    """The same in one array."""
    return np.stack(drawn(rngs))


def test_they_draw_the_keys_of_nnx_also_under_a_trace():
    wanted = keys(nnx.Rngs(params=7))
    assert (keys(Streams(7)) == wanted).all()
    assert (keys(Streams(jax.random.key(7))) == wanted).all()
    assert (jax.jit(lambda: jnp.stack(drawn(Streams(7))))() == wanted).all()


def test_a_module_of_flax_draws_the_same_parameters():
    made = [nnx.Linear(3, 5, rngs=rngs) for rngs in (nnx.Rngs(params=1), Streams(1))]
    assert (made[0].kernel[...] == made[1].kernel[...]).all()

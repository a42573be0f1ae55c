"""Checkpoints: exact, not disturbed by the steps after them, and refused when they do not fit."""

from __future__ import annotations

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.graph import UserError
from gtjax.training.checkpoint import KEPT, Best, Checkpoints, Snapshot
from gtjax.training.step import State


def snapshot(step, value=0.0, size=3):
    params = {"w": jnp.full((size, size), value), "b": {"0": jnp.arange(size) + value}}
    state = State(params, None, (jnp.int32(step),), jnp.int32(step), jnp.array(True))
    return Snapshot(state, Best.none_yet(params))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_the_newest_checkpoint_comes_back_bit_for_bit(out):
    with Checkpoints(out) as checkpoints:
        assert not checkpoints.any
        for step in range(KEPT + 2):
            checkpoints.save(snapshot(step, np.pi * step))
    with Checkpoints(out) as checkpoints:
        assert checkpoints.any
        assert_same(checkpoints.restore(snapshot(0)), snapshot(KEPT + 1, np.pi * (KEPT + 1)))
    kept = {int(path.name) for path in (out / "checkpoints").iterdir()}
    assert kept == set(range(2, KEPT + 2))


def test_steps_taken_while_it_is_written_do_not_reach_the_checkpoint(out):
    overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x + jnp.ones_like(x), s), donate_argnums=0)
    current = snapshot(1, 2.0, size=1500)
    with Checkpoints(out) as checkpoints:
        checkpoints.save(current)
        state = current.state._replace(healthy=jnp.int32(1))
        for _ in range(20):  # gives up the buffers that are being written
            state = overwrite(state)
        jax.block_until_ready(state)
    with Checkpoints(out) as checkpoints:
        assert_same(checkpoints.restore(snapshot(0, size=1500)), snapshot(1, 2.0, size=1500))


def test_without_a_checkpoint_there_is_nothing_to_restore(out):
    with Checkpoints(out) as checkpoints, pytest.raises(UserError, match="no checkpoint yet"):
        checkpoints.restore(snapshot(0))


def test_a_checkpoint_of_another_model_is_refused(out):
    with Checkpoints(out) as checkpoints:
        checkpoints.save(snapshot(1))
    with (
        Checkpoints(out) as checkpoints,
        pytest.raises(UserError, match=r"is damaged, or config\.json is not the one"),
    ):
        checkpoints.restore(snapshot(0, size=4))


def test_a_damaged_checkpoint_is_refused(out):
    with Checkpoints(out) as checkpoints:
        checkpoints.save(snapshot(1))
    shutil.rmtree(out / "checkpoints" / "1" / "default")
    with Checkpoints(out) as checkpoints, pytest.raises(UserError, match="is damaged"):
        checkpoints.restore(snapshot(0))


def test_until_something_validates_the_newest_parameters_are_chosen():
    new = snapshot(7, 5.0)
    unseen = new._replace(best=Best.none_yet({"w": jnp.zeros(1)}))
    assert_same(unseen.chosen.params, new.state.params)
    assert int(unseen.chosen.step) == 7
    averaged = unseen._replace(state=new.state._replace(average={"w": jnp.ones(2)}))
    assert_same(averaged.chosen.params, {"w": jnp.ones(2)})
    seen = new._replace(best=Best({"w": jnp.ones(1)}, jnp.float32(0.5), jnp.int32(4)))
    assert_same(seen.chosen, seen.best)

"""Checkpoints: exact, not disturbed by the steps after them, and refused when they do not fit."""

from __future__ import annotations

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.runs.checkpoint import KEPT, Best, Checkpoints, Snapshot
from gtjax.runs.program import State


def snapshot(step, value=0.0, size=3):
    params = {"w": jnp.full((size, size), value), "b": {"0": jnp.arange(size) + value}}
    state = State(params, None, (jnp.int32(step),), jnp.int32(step), jnp.array(True))
    return Snapshot(state, Best.none_yet(params))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def written(out, *steps, **options):
    with Checkpoints(out, **options) as checkpoints:
        for step in steps:
            checkpoints.save(snapshot(step, np.pi * step))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_checkpoint_comes_back_bit_for_bit(out):
    with Checkpoints(out) as checkpoints:
        assert not checkpoints.steps()
    written(out, *range(KEPT + 2))
    with Checkpoints(out) as checkpoints:
        assert checkpoints.steps()
        assert checkpoints.steps() == [KEPT + 1, KEPT]
        assert_same(checkpoints.restore(snapshot(0)), snapshot(KEPT + 1, np.pi * (KEPT + 1)))
        assert checkpoints.damaged == []
        assert checkpoints.durable == KEPT + 1
        assert_same(checkpoints.read(KEPT, snapshot(0)), snapshot(KEPT, np.pi * KEPT))
        assert checkpoints.durable == KEPT + 1
    assert names_in(out / "checkpoints") == [str(KEPT), str(KEPT + 1)]


def test_every_type_and_shape_comes_back(out, rng):
    values = rng.integers(0, 256, (4, 6), np.uint8)
    params = {
        "bfloat16": jnp.asarray(values).view(jnp.bfloat16),  # any bits, so NaNs as well
        "float32": jnp.array([-0.0, np.nan, np.inf, 1e-45]),
        "int8": jnp.asarray(values).view(jnp.int8),
        "bool": jnp.asarray(values > 99),
        "scalar": jnp.bfloat16(3),
        "empty": jnp.zeros((0, 3), jnp.bfloat16),
        "transposed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
    }
    state = State(params, params, (), jnp.int32(7), jnp.array(False))
    want = Snapshot(state, Best(params, jnp.float32(0.1), jnp.int32(3)))
    with Checkpoints(out) as checkpoints:
        checkpoints.save(want)
    with Checkpoints(out) as checkpoints:
        found = checkpoints.read(7, jax.eval_shape(lambda: want))
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
        assert_same(found, want)
        assert_same(checkpoints.restore(want), want)


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


def test_a_checkpoint_says_what_it_was_told_of_its_run(out):
    about = {"seed": 3, "plan": ("a", 1), "ratio": 0.1, "näme": None, "deep": {"1": [True]}}
    written(out, 5, about=about)
    with Checkpoints(out) as checkpoints:
        manifest = checkpoints.manifest(5)
    assert manifest["about"] == about | {"plan": ["a", 1]}
    assert manifest["step"] == 5


def test_it_is_known_when_a_checkpoint_is_complete(out):
    with Checkpoints(out) as checkpoints:
        assert checkpoints.durable is None
        checkpoints.save(snapshot(4))
        checkpoints.save(snapshot(6))  # waits for the one before it
        assert checkpoints.durable in (4, 6)
        while checkpoints.durable != 6:
            checkpoints.check()
    with Checkpoints(out) as checkpoints:
        checkpoints.restore(snapshot(0))
        assert checkpoints.durable == 6


def test_the_newest_few_are_kept(out):
    written(out, 1, 2, 3, 4, keep=3)
    assert names_in(out / "checkpoints") == ["2", "3", "4"]
    written(out, 5, keep=1)
    assert names_in(out / "checkpoints") == ["5"]


def test_a_step_that_is_saved_is_not_written_again(out):
    with Checkpoints(out) as checkpoints:
        checkpoints.save(snapshot(1, 1.0))
        checkpoints.save(snapshot(1, 2.0))
        assert_same(checkpoints.read(1, snapshot(0)), snapshot(1, 1.0))


def test_without_a_checkpoint_there_is_nothing_to_restore(out):
    with Checkpoints(out) as checkpoints, pytest.raises(UserError, match="no checkpoint yet"):
        checkpoints.restore(snapshot(0))
    assert not out.exists()  # looking for one writes nothing


def test_a_checkpoint_of_another_model_is_refused_and_not_called_damaged(out):
    written(out, 1, 2)
    with Checkpoints(out) as checkpoints:
        with pytest.raises(UserError, match=r"config\.json is not the one") as caught:
            checkpoints.restore(snapshot(0, size=4))
        assert type(caught.value) is UserError
        assert checkpoints.damaged == []


def test_a_checkpoint_of_an_earlier_version_is_refused(out):
    written(out, 1)
    shutil.rmtree(out / "checkpoints" / "1" / "manifest")
    (out / "checkpoints" / "1" / "arrays").rename(out / "checkpoints" / "1" / "default")
    with Checkpoints(out) as checkpoints, pytest.raises(UserError, match="of an earlier gtjax"):
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

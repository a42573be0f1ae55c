"""What recipes add to the loss: their papers' formulas, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.nn import Inputs
from gtjax.recipes.base import Pass
from gtjax.recipes.config import RecipeConfig
from gtjax.recipes.consistency import Consistency, sharpened
from gtjax.recipes.recipes import recipes_of
from gtjax.recipes.sharpening import Sharpening

NODES, CLASSES, PASSES = 7, 3, 4
VALID = np.array([1, 1, 1, 1, 1, 0, 0], bool)  # two rows are padding
TRAIN = np.array([1, 1, 0, 0, 1, 0, 0], bool)
LABELS = np.array([2, -1, 0, 1, 1, 0, 0])  # one of the training nodes has no label


@pytest.fixture
def logits():
    return 2 * np.random.default_rng(1).standard_normal((PASSES, NODES, CLASSES))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def term(recipe, logits):
    inputs = Inputs(jnp.zeros((NODES, 1)), valid_n=jnp.asarray(VALID))
    targets = {"train": jnp.asarray(TRAIN), "labels": jnp.asarray(LABELS)}
    passes = [Pass(each, targets, jnp.float32(0)) for each in logits]
    return recipe.term(passes, inputs, targets)


def distance(logits, target=None):
    """The loss of GRAND: from the sharpened mean, over all nodes and passes."""
    p = softmax(logits)
    if target is None:
        target = p.mean(axis=0) ** (1 / 0.3)
        target /= target.sum(axis=1, keepdims=True)
    return np.mean([np.sum((each - target)[VALID] ** 2, axis=1).mean() for each in p]), target


def test_consistency_is_the_distance_from_the_sharpened_mean(logits):
    got = term(Consistency(0.7, PASSES, 0.3), jnp.asarray(logits, jnp.float32))
    np.testing.assert_allclose(got, 0.7 * distance(logits)[0], rtol=1e-5)


def test_the_sharpened_mean_is_a_constant(logits):
    got = jax.grad(lambda x: term(Consistency(1.0, PASSES, 0.3), x))(jnp.asarray(logits, "float32"))
    _, target = distance(logits)
    wanted = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        apart = [distance(logits + sign * step, target)[0] for sign in (1, -1)]
        wanted[place] = (apart[0] - apart[1]) / 2e-5
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    assert np.abs(wanted).max() > 1e-3


def test_sharpening_to_a_point_and_not_at_all():
    p_nc = jnp.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(sharpened(p_nc, 1.0), p_nc, atol=1e-7)
    np.testing.assert_allclose(sharpened(p_nc, 0.01), [[1, 0, 0], [1, 0, 0]], atol=1e-6)


def test_sharpening_is_entropy_of_unlabelled_minus_that_of_labelled(logits):
    p = softmax(logits)
    entropy = -(p * np.log(p)).sum(axis=2)
    labelled = TRAIN & (LABELS >= 0)
    unlabelled = VALID & ~labelled
    wanted = 1.3 * (entropy[:, unlabelled].mean() - entropy[:, labelled].mean())
    got = term(Sharpening(1.3), jnp.asarray(logits, jnp.float32))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_recipe_is_used_where_its_first_number_says_so():
    assert recipes_of(RecipeConfig()).used == ()
    both = recipes_of(RecipeConfig(consistency=0.5, sharpening=0.1, flag_steps=3)).used
    assert [type(each).__name__ for each in both] == ["Consistency", "Sharpening", "Flag"]


@pytest.mark.parametrize(
    "changes",
    [
        {"consistency": -1.0},
        {"consistency_passes": 1},
        {"consistency_temperature": 0.0},
        {"sharpening": -0.1},
        {"flag_steps": -1},
        {"flag_size": 0.0},
    ],
)
def test_settings_without_meaning_are_refused(changes):
    with pytest.raises(ValueError, match=f"recipe.{next(iter(changes))}"):
        RecipeConfig(**changes)

"""The shapes that public ops are annotated with are those that they take and give."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

import pallas_kernels
from pallas_kernels import build_edges

EDGES = build_edges([2, 0, 1, 2], [0, 1, 1, 2], num_senders=3, num_receivers=3)
ROWS = {"r": 3, "s": 3, "e": 4, "h": 2, "d": 5, "f": 7}
ARGUMENTS = {
    "segment_attention": ["rhd", "shd", "shd", EDGES, "eh"],
    "segment_gat": ["rh", "sh", "shd", EDGES, "eh"],
    "segment_gatv2": ["rhd", "shd", "hd", EDGES, "ehd"],
    "segment_sum": ["shd", EDGES, "eh"],
    "segment_extreme": ["sf", EDGES],
}


def checked(name):
    return jaxtyped(getattr(pallas_kernels, name), typechecker=beartype)


def arrays(letters, sizes=ROWS):
    shape = tuple(sizes[letter] for letter in letters)
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


def given(name, sizes=ROWS):
    return [arrays(each, sizes) if isinstance(each, str) else each for each in ARGUMENTS[name]]


def test_every_public_op_is_here():
    found = {n for n in pallas_kernels.__all__ if n.startswith("segment_")}
    assert found == {*ARGUMENTS, "segment_custom"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_annotated_is_taken_and_given(name):
    assert checked(name)(*given(name)).shape[0] == ROWS["r"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_another_shape_is_not(name):
    arguments = given(name)
    arguments[0] = arguments[0][None]
    with pytest.raises(TypeCheckError):
        checked(name)(*arguments)


def test_a_message_may_have_any_shape():
    op = checked("segment_custom")
    rows = arrays("shd")
    assert op(lambda r, s, e, shared: s, EDGES, sender=rows).shape == (3, 2, 5)

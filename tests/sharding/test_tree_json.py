"""Trees of our classes come back from JSON as they were; no other class is ever made."""

from __future__ import annotations

import dataclasses
import json
from typing import NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gtjax.nn import Inputs
from gtjax.sharding.stored import StoredArray
from gtjax.sharding.tree_json import from_json, to_json
from gtjax.strategies import MeshShape
from gtjax.strategies.exchange import Messages, Round
from gtjax.strategies.node_ring import RingArrays
from gtjax.strategies.ragged import Ends
from pallas_kernels.edges.pieces import Pieces

plain = st.none() | st.booleans() | st.integers() | st.text()
pairs = st.lists(st.tuples(st.integers(), st.integers())).map(tuple)


def larger(inner):
    return st.one_of(
        st.lists(inner).map(tuple),
        st.dictionaries(st.text(), inner),
        st.builds(Round, inner, st.builds(Messages, pairs, st.integers())),
        st.builds(RingArrays, inner, inner),
        st.builds(Pieces, inner, inner, inner),
        st.tuples(*[inner] * 7).map(lambda fields: Inputs(*fields)),
    )


def types_of(tree):
    """With the types of everything, since True equals 1 and a named tuple equals a tuple."""
    if isinstance(tree, dict):
        return dict, {key: types_of(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return type(tree), [types_of(each) for each in tree]
    if dataclasses.is_dataclass(tree):
        return type(tree), [types_of(getattr(tree, f.name)) for f in dataclasses.fields(tree)]
    return type(tree), tree


@given(st.recursive(plain, larger, max_leaves=20))
def test_any_tree_comes_back(tree):
    back = from_json(json.loads(json.dumps(to_json(tree))))
    assert types_of(back) == types_of(tree)
    assert jax.tree.structure(back) == jax.tree.structure(tree)


@given(st.recursive(plain, lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=20))
def test_any_other_json_is_a_tree_or_an_error(stored):
    try:
        tree = from_json(stored)
    except ValueError:
        return
    assert to_json(tree) == stored


class Elsewhere(NamedTuple):
    x: int


@pytest.mark.parametrize(
    "tree", [1.5, [1], {1: 2}, np.int64(3), np.zeros(2), Elsewhere(1), object(), json, MeshShape]
)
def test_what_would_not_come_back_is_not_written(tree):
    with pytest.raises(TypeError, match="named tuples are written"):
        to_json((tree,))


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "gtjax.sharding.stored:shutil.rmtree",
        "gtjax.sharding.stored:Path",  # known there, and not defined there
        "gtjax.sharding.stored:StoreWriter",
        "gtjax.sharding.stored:write_store",
        "gtjax.strategies:MeshShape",
        "gtjax.strategies.base:MeshShape.__init__",
        "gtjaxx:A",
        "gtjax.no_such_module:A",
        "collections:OrderedDict",
        "gtjax",
        "",
        None,
        3,
    ],
)
def test_no_other_class_is_made(name):
    with pytest.raises(ValueError, match="there is no class"):
        from_json({"class": name, "fields": {}})


def test_fields_have_to_be_those_of_the_class():
    stored = to_json(Ends(1, 2, 3, 4))
    assert from_json(stored) == Ends(1, 2, 3, 4)
    for fields in ({}, {**stored["fields"], "more": 1}, [1, 2, 3, 4], None):
        with pytest.raises(ValueError, match="with these fields"):
            from_json({**stored, "fields": fields})
    array = to_json(StoredArray(1, "row", (4, 2), "float32"))
    for change in ({"number": "../1"}, {"shape": [-1]}, {"by": "x"}, {"dtype": "x"}, {"shape": 3}):
        with pytest.raises(ValueError, match=r"array|StoredArray"):
            from_json({**array, "fields": {**array["fields"], **change}})

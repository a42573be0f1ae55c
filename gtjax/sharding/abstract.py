"""Shapes of what `place` would put on devices: enough to compile for devices that are not there.

Choose them to ask a compiler what a program will take before there is data, or a machine, to run it
on. They cost nothing: no array is made and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gtjax.sharding.specs import BY_PART, BY_ROW, EVERYWHERE


def abstract_rows(
    mesh: Mesh,
    number_pr: np.ndarray,
    source: np.ndarray,
    fill: Any = 0,
    change: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
) -> jax.ShapeDtypeStruct:
    """What `place_rows` gives."""
    one = change(source[:0])
    return _abstract(mesh, BY_ROW, (number_pr.size, *one.shape[1:]), one.dtype)


def abstract_parts(mesh: Mesh, arrays: Any) -> Any:
    """What `place_parts` gives."""
    return jax.tree.map(lambda x: _abstract(mesh, BY_PART, x.shape, x.dtype), arrays)


def abstract_everywhere(mesh: Mesh, tree: Any) -> Any:
    """What `place_everywhere` gives, of arrays or of shapes."""
    return jax.tree.map(lambda x: _abstract(mesh, EVERYWHERE, x.shape, x.dtype), tree)


def _abstract(
    mesh: Mesh, spec: PartitionSpec, shape: tuple[int, ...], dtype: Any
) -> jax.ShapeDtypeStruct:
    # Arrays on devices have no 64-bit numbers, unless jax is told so.
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

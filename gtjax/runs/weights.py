"""Parameters by name in a safetensors file: to look at, to carry elsewhere, to start from.

Names are those of the modules, as in "encoder.stack.layers.0.conv.linear.kernel". The format holds
plain arrays and nothing that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import say

Weights = Mapping[str, np.ndarray]


def named(params: Any) -> dict[str, np.ndarray]:
    """Parameters as arrays by name."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {_name(path): np.asarray(value) for path, value in leaves}


def save_weights(weights: Weights, path: str | Path) -> None:
    """Write arrays by name; the file appears under its name only once it is complete."""
    path = Path(path)
    part = path.with_name(f".{path.name}.part")
    arrays = {name: np.ascontiguousarray(value) for name, value in weights.items()}
    try:
        _library().save_file(arrays, part)
        part.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot write there: {error.strerror}") from error


def load_weights(path: str | Path) -> dict[str, np.ndarray]:
    """Read arrays by name."""
    try:
        return _library().load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file of weights") from error
    except Exception as error:  # the library's own kind
        raise UserError(f"{path}: not a readable safetensors file: {error}") from error


def started_from(params: Any, weights: Weights, *, show: bool = True) -> Any:
    """The parameters with those of the same name and shape taken from `weights`.

    What has another shape, such as the head of a task with other classes, stays as it was drawn,
    and is said. A UserError if nothing fits.
    """
    fresh, other = [], []

    def take(path: Any, value: jax.Array) -> jax.Array:
        name = _name(path)
        found = weights.get(name)
        if found is None:
            fresh.append(name)
        elif found.shape != value.shape:
            other.append(f"{name} {list(found.shape)} for {list(value.shape)}")
        else:
            return jnp.asarray(found, value.dtype)
        return value

    taken = jax.tree_util.tree_map_with_path(take, params)
    count = len(jax.tree.leaves(params))
    if count == len(fresh) + len(other):
        ours, theirs = (", ".join(sorted(each)[:3]) for each in (named(params), weights))
        raise UserError(
            f"none of the weights fits the model: it has {ours}, ...; they are of "
            f"{theirs or 'nothing'}, ... Use the model and settings that they were trained with."
        )
    if show and (fresh or other):
        left = "; ".join([*other, *fresh][:6])
        say(f"starting from {count - len(fresh) - len(other)} of {count} arrays; new: {left}")
    return taken


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _library() -> Any:
    try:
        return import_module("safetensors.numpy")
    except ImportError as error:
        raise UserError(
            'safetensors is not installed, and this needs it. Run: pip install "gtjax[safetensors]"'
        ) from error

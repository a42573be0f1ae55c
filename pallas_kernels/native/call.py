"""Calls of native functions that stay one call under `jax.vmap`: batches become further heads.

Heads are independent of each other and the edges are the same for all, so a batch of five models
goes through the edges once, reading rows that are five times as wide, instead of five times.
Every head draws dropout by the seed of the batch that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

Axis = int | None
Given = tuple[jax.Array, Axis]


def call(
    target: str,
    operands: Sequence[Given],
    results: Sequence[tuple[tuple[int, ...], int]],
    aliases: dict[int, int] | None = None,
    **attributes: Any,
) -> list[jax.Array]:
    """The results of a native function, in float32.

    Args:
        target: Its name.
        operands: Arrays, each with its axis of heads; None where it has none, such as offsets of
            edges. Seeds have one each for as many heads, in order.
        results: Shapes, each with its axis of heads.
        aliases: Operands, by number, whose memory a result takes.
        attributes: What the function is told beside arrays.
    """
    axes = [axis for _, axis in operands]

    @custom_vmap
    def plain(*arrays: jax.Array) -> list[jax.Array]:
        types = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape, _ in results]
        run = jax.ffi.ffi_call(target, types, input_output_aliases=aliases or {})
        return list(run(*arrays, **attributes))

    @plain.def_vmap
    def _(size: int, batched: Sequence[bool], *arrays: jax.Array) -> Any:
        if any(is_batched and axis is None for is_batched, axis in zip(batched, axes, strict=True)):
            return _one_by_one(plain, batched, arrays), [True] * len(results)
        each = zip(arrays, axes, batched, strict=True)
        folded = [(_folded(*one, size), one[1]) for one in each]
        wider = [(_wider(shape, axis, size), axis) for shape, axis in results]
        found = call(target, folded, wider, aliases, **attributes)
        both = zip(found, results, strict=True)
        return [_unfolded(x, axis, size) for x, (_, axis) in both], [True] * len(results)

    return plain(*(jnp.asarray(array) for array, _ in operands))


def _folded(array: jax.Array, axis: Axis, is_batched: bool, size: int) -> jax.Array:
    """The batch as heads, batch after batch; what is the same for all is there for each."""
    if axis is None:
        return array
    if not is_batched:
        array = jnp.broadcast_to(array, (size, *array.shape))
    moved = jnp.moveaxis(array, 0, axis)
    heads = size * moved.shape[axis + 1]
    return moved.reshape(*moved.shape[:axis], heads, *moved.shape[axis + 2 :])


def _wider(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size * shape[axis], *shape[axis + 1 :])


def _unfolded(array: jax.Array, axis: int, size: int) -> jax.Array:
    shape = array.shape
    apart = array.reshape(*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :])
    return jnp.moveaxis(apart, axis, 0)


def _one_by_one(run: Any, batched: Sequence[bool], arrays: Sequence[jax.Array]) -> Any:
    """Where also the edges differ."""

    def one(mapped: list[jax.Array]) -> Any:
        left = iter(mapped)
        return run(*(next(left) if b else x for x, b in zip(arrays, batched, strict=True)))

    return jax.lax.map(one, [x for x, b in zip(arrays, batched, strict=True) if b])

"""Host arrays to sharded arrays, shard by shard, so that no second full copy is ever made.

Each shard's rows are gathered from the host's array, put on their device, and forgotten, before the
next shard's. On several hosts each places only the shards of its own devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gtjax.sharding.specs import BY_PART, BY_ROW, EVERYWHERE
from gtjax.strategies import PADDING

TOGETHER = 1 << 14  # rows that are gathered and changed at once


def place_rows(
    mesh: Mesh,
    number_pr: np.ndarray,
    source: np.ndarray,
    fill: Any = 0,
    change: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
) -> jax.Array:
    """Rows of `source`, by number, part by part over all devices; `fill` where it is padding.

    `change` is applied to the rows of a shard before they are placed.
    """
    shape, shard = rows_by_number(number_pr, source, fill, change)
    return _shard_by_shard(shape, NamedSharding(mesh, BY_ROW), lambda index: shard(index[0]))


def rows_by_number(
    number_pr: np.ndarray,
    source: np.ndarray,
    fill: Any,
    change: Callable[[np.ndarray], np.ndarray],
) -> tuple[tuple[int, ...], Callable[[slice], np.ndarray]]:
    """The shape of what `place_rows` places, and a function that gathers a range of its rows."""
    flat = number_pr.reshape(-1)
    shape = (len(flat), *change(source[:0]).shape[1:])

    def gathered(some: slice) -> np.ndarray:
        numbers = flat[some]
        there = numbers != PADDING
        if not len(source):
            return np.full((len(numbers), *shape[1:]), fill, change(source).dtype)
        rows = np.empty((len(numbers), *shape[1:]), change(source[:0]).dtype)
        for start in range(0, len(numbers), TOGETHER):  # `change` may take several times as much
            part = slice(start, start + TOGETHER)
            rows[part] = change(source[np.where(there[part], numbers[part], 0)])
        if not there.all():
            rows[~there] = fill
        return rows

    return shape, gathered


def place_parts(mesh: Mesh, arrays: Any) -> Any:
    """Arrays with a leading axis of parts, each part on its devices."""
    sharding = NamedSharding(mesh, BY_PART)
    return jax.tree.map(lambda x: _shard_by_shard(x.shape, sharding, lambda i: x[i]), arrays)


def place_everywhere(mesh: Mesh, tree: Any) -> Any:
    """The same values on every device; on several hosts, each places what it has itself."""
    sharding = NamedSharding(mesh, EVERYWHERE)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(
        lambda x: _shard_by_shard(np.shape(x), sharding, lambda _: np.asarray(x)), tree
    )


def place_local(mesh: Mesh, spec: PartitionSpec, parts: int, by_part: dict[int, Any]) -> Any:
    """Trees of arrays, one for each part of this process, joined along their first axis.

    A part is on one device, and all parts have the same shapes. What was given is not to be changed
    afterwards: a CPU takes it as it is.
    """
    sharding = NamedSharding(mesh, spec)
    devices = mesh.devices.reshape(parts, -1)[:, 0]

    def joined(*arrays: np.ndarray) -> jax.Array:
        placed = [
            jax.device_put(array, devices[part])
            for part, array in zip(by_part, arrays, strict=True)
        ]
        shape = (parts * arrays[0].shape[0], *arrays[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)

    return jax.tree.map(joined, *by_part.values())


def _shard_by_shard(
    shape: tuple[int, ...], sharding: NamedSharding, shard: Callable[[Any], np.ndarray]
) -> jax.Array:
    """As `jax.make_array_from_callback`, which would hold all shards on the host at once."""
    placed = [
        jax.device_put(shard(index), device, may_alias=False).block_until_ready()
        for device, index in sharding.addressable_devices_indices_map(shape).items()
    ]
    return jax.make_array_from_single_device_arrays(shape, sharding, placed)

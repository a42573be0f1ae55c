"""Times collectives over every axis that a mesh of the devices at hand can have.

An axis of `n` devices out of `P` is the feature axis of a mesh `P/n x n`, whose groups are
neighbours, or the node axis of a mesh `n x P/n`, whose groups stand apart. On one host the two are
alike and one is measured; on several, groups of neighbours may stay within a host, and are measured
apart from groups that do not. All groups talk at once, as in a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gtjax.core.progress import Progress
from gtjax.hardware.profile import COLLECTIVES, Curve
from gtjax.hardware.timing import seconds_of

AXIS, OTHER = "axis", "other"
SIZES = tuple(2**power for power in range(8, 24, 2))  # bytes received: 256 B to 4 MiB
LARGER = (2**24,)  # only where the one before took less than LARGE_SECONDS
LARGE_SECONDS = 0.05
ROUNDS = 4  # collectives one after the other in a program, so that its start does not count


def measure_links(devices: Sequence[Any], progress: Progress) -> tuple[Curve, ...]:
    """Curves of all collectives over all axes of meshes of these devices."""
    wanted = [(name, mesh, hosts) for mesh, hosts in axes_of(devices) for name in COLLECTIVES]
    curves = []
    for number, (name, mesh, hosts) in enumerate(wanted):
        size = mesh.shape[AXIS]
        progress(number / len(wanted), f"{name} over {size} devices")
        curves.append(Curve(name, size, hosts, _points(name, mesh)))
    return tuple(curves)


def axes_of(devices: Sequence[Any]) -> list[tuple[Mesh, int]]:
    """Meshes with every axis that can be, and the number of hosts that a group of it spans."""
    types = (AxisType.Auto, AxisType.Auto)
    return [
        (Mesh(grid, (OTHER, AXIS), axis_types=types), hosts) for grid, hosts in groups_of(devices)
    ]


def groups_of(devices: Sequence[Any]) -> list[tuple[np.ndarray, int]]:
    """Devices by group, for every length of an axis and number of hosts that a group spans."""
    flat, found = np.array(devices), {}
    for size in (n for n in range(2, len(flat) + 1) if len(flat) % n == 0):
        for grid in (flat.reshape(-1, size), flat.reshape(size, -1).T):
            hosts = max(len({device.process_index for device in group}) for group in grid)
            found.setdefault((size, hosts), grid)
    return [(grid, hosts) for (_, hosts), grid in found.items()]


def _points(name: str, mesh: Mesh) -> tuple[tuple[float, float], ...]:
    points: list[tuple[float, float]] = []
    for received in (*SIZES, *LARGER):
        if received in LARGER and points[-1][1] > LARGE_SECONDS:
            break
        program, argument = collective_program(name, mesh, received)
        points.append((float(received), seconds_of(program, argument) / ROUNDS))
    return tuple(points)


def collective_program(name: str, mesh: Mesh, received: int) -> tuple[Any, Any]:
    """A compiled program in which every device receives so many bytes ROUNDS times, and its input.

    Each round needs the result of the one before, and changes little of it, so that the collective
    is what is timed.
    """
    size = mesh.shape[AXIS]
    once = partial(_ONCE[name], size=size)
    length = max(size, _LENGTHS[name](received // 4, size) // size * size)

    def rounds(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, ROUNDS, lambda i, x: once(x, i), x)

    spec = PartitionSpec((OTHER, AXIS))
    run = jax.shard_map(rounds, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    sharding = NamedSharding(mesh, spec)
    shape = jax.ShapeDtypeStruct((mesh.size * length,), jnp.float32, sharding=sharding)
    zeros = jax.jit(lambda: jnp.zeros(shape.shape, jnp.float32), out_shardings=sharding)()
    return jax.jit(run).lower(shape).compile(), zeros


def _all_gather(x: jax.Array, i: jax.Array, size: int) -> jax.Array:
    every = jax.lax.all_gather(x, AXIS)
    return jax.lax.dynamic_index_in_dim(every, i % size, keepdims=False)


def _reduce_scatter(x: jax.Array, i: jax.Array, size: int) -> jax.Array:
    own = jax.lax.psum_scatter(x, AXIS, tiled=True)
    return jax.lax.dynamic_update_slice(x, own, (0,))


def _all_to_all(x: jax.Array, i: jax.Array, size: int) -> jax.Array:
    return jax.lax.all_to_all(x, AXIS, split_axis=0, concat_axis=0, tiled=True)


def _permute(x: jax.Array, i: jax.Array, size: int) -> jax.Array:
    return jax.lax.ppermute(x, AXIS, [(d, (d + 1) % size) for d in range(size)])


def _all_reduce(x: jax.Array, i: jax.Array, size: int) -> jax.Array:
    return jax.lax.psum(x, AXIS)


_ONCE: dict[str, Callable[..., jax.Array]] = {
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
    "collective-permute": _permute,
    "all-reduce": _all_reduce,
}
# How long an operand is, so that a device receives so many values.
_LENGTHS: dict[str, Callable[[int, int], int]] = {
    "all-gather": lambda values, size: values // (size - 1),
    "reduce-scatter": lambda values, size: values * size // (size - 1),
    "all-to-all": lambda values, size: values * size // (size - 1),
    "collective-permute": lambda values, size: values,
    "all-reduce": lambda values, size: values * size // (2 * (size - 1)),
}

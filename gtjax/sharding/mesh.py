"""The mesh of a run: how many devices, along which axes, for which strategy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from gtjax.core.errors import UserError, one_of
from gtjax.sharding.config import MOST_SIMULATED, ParallelConfig, check_simulated
from gtjax.strategies import (
    FEATURE,
    NODE,
    STRATEGIES,
    MeshShape,
    NodeByFeature,
    OpWork,
    Strategy,
)
from gtjax.strategies.node_halo import NodeHalo


@dataclass(frozen=True)
class Spread:
    """A strategy and the mesh that it runs on."""

    strategy: Strategy
    shape: MeshShape
    mesh: Mesh

    @property
    def platform(self) -> str:
        """Of the mesh's devices, which need not be there: "cpu", "gpu" or "tpu"."""
        platform = self.mesh.devices.flat[0].platform
        return "gpu" if platform in ("cuda", "rocm") else platform


def spread(
    config: ParallelConfig, works: Sequence[OpWork], devices: Sequence[Any] | None = None
) -> Spread:
    """The strategy and mesh that a config asks for; refuses what cannot run.

    `devices` are by default those that jax finds. They may also be described only
    (`jax.experimental.topologies`), to compile for devices that are not there.
    """
    shape = None if config.mesh is None else parse_mesh(config.mesh)
    wanted = config.devices if shape is None else shape.devices
    if config.devices is not None and wanted != config.devices:
        raise UserError(f"--mesh {config.mesh} has {wanted} devices; --devices is {config.devices}")
    count = available_devices(wanted) if devices is None else _given_devices(wanted, len(devices))
    strategy = chosen_strategy(config, count)
    shape = shape or default_shape(strategy, count, works)
    if refused := strategy.refusal(works, shape):
        raise UserError(str(refused))
    result = Spread(strategy, shape, make_mesh(shape, devices))
    if config.exchange == "ragged" and result.platform == "cpu":
        raise UserError("--exchange ragged runs on TPUs and GPUs; this is a CPU. Use rounds.")
    return result


def chosen_strategy(config: ParallelConfig, devices: int) -> Strategy:
    """The strategy of that name; "auto" is the simplest that is likely to do well."""
    name = config.strategy
    if name == "auto":
        name = "single" if devices == 1 else "node_halo"
    strategy = one_of(STRATEGIES, name, "--strategy")
    if isinstance(strategy, NodeByFeature) and NODE in strategy.mesh_axes:
        inner = _exchanging(STRATEGIES[config.inner], config)
        return dataclasses.replace(strategy, inner=inner)
    return _exchanging(strategy, config)


def _exchanging(strategy: Strategy, config: ParallelConfig) -> Strategy:
    if not isinstance(strategy, NodeHalo):
        return strategy
    return dataclasses.replace(strategy, exchange=config.exchange)


def default_shape(strategy: Strategy, devices: int, works: Sequence[OpWork]) -> MeshShape:
    """All devices along the strategy's axis; of two, as square as all ops divide."""
    if len(strategy.mesh_axes) < 2:
        return MeshShape(feature=devices) if FEATURE in strategy.mesh_axes else MeshShape(devices)
    able = [
        f
        for f in range(1, devices + 1)
        if devices % f == 0 and all(f == 1 or work.split(f) for work in works)
    ]
    feature = max(f for f in able if f * f <= devices)
    return MeshShape(devices // feature, feature)


def parse_mesh(text: str) -> MeshShape:
    """Read "node=4,feature=2"; an axis that is not named has one device."""
    sizes: dict[str, int] = {}
    for word in text.split(","):
        axis, _, size = (part.strip() for part in word.partition("="))
        if axis not in (NODE, FEATURE) or axis in sizes or not size.isdecimal() or int(size) < 1:
            raise UserError(f'--mesh is such as "node=4,feature=2"; found {text!r}')
        sizes[axis] = int(size)
    return MeshShape(**sizes)


def simulate_devices(config: ParallelConfig) -> None:
    """On a CPU, let jax show as many devices as are asked for, if it has not looked yet."""
    wanted = config.devices if config.mesh is None else parse_mesh(config.mesh).devices
    if wanted is None or wanted == 1:
        return
    if wanted > MOST_SIMULATED and (jax.default_backend() != "cpu" or jax.device_count() >= wanted):
        return
    check_simulated(wanted, "--devices" if config.mesh is None else "--mesh")
    # Too late is not an error here: `available_devices` says what to do if there are too few.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", wanted)


def available_devices(wanted: int | None) -> int:
    """How many devices to use: as many as wanted; or all, but one where they are simulated."""
    there = jax.device_count()
    if wanted is None:
        return 1 if jax.default_backend() == "cpu" and jax.process_count() == 1 else there
    if wanted <= there:
        return wanted
    advice = "use fewer"
    if jax.default_backend() == "cpu":
        advice = f'call jax.config.update("jax_num_cpu_devices", {wanted}) before anything else'
    raise UserError(f"{wanted} devices are asked for, and there are {there}: {advice}")


def _given_devices(wanted: int | None, there: int) -> int:
    if wanted is not None and wanted > there:
        raise UserError(f"{wanted} devices are asked for, and {there} are given: use fewer")
    return wanted or there


def make_mesh(shape: MeshShape, devices: Sequence[Any] | None = None) -> Mesh:
    """The first devices as a mesh with the axes "node" and "feature"."""
    devices = jax.devices() if devices is None else devices
    sizes, types = (shape.node, shape.feature), (AxisType.Auto, AxisType.Auto)
    if shape.devices == len(devices):  # in the order that suits the links between them
        return jax.make_mesh(sizes, (NODE, FEATURE), axis_types=types, devices=devices)
    first = np.array(devices[: shape.devices]).reshape(sizes)
    return Mesh(first, (NODE, FEATURE), axis_types=types)

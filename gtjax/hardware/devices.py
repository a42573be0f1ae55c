"""All devices at the same work at once, timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gtjax.hardware.timing import seconds_of

ALL = PartitionSpec("all")


class Devices:
    """All devices along one axis, and programs that each of them runs on arrays of its own."""

    def __init__(self, devices: Sequence[Any]):
        self.mesh = Mesh(np.array(devices), ("all",), axis_types=(AxisType.Auto,))
        self.count = len(devices)
        on_host = sum(d.process_index == devices[0].process_index for d in devices)
        # Simulated devices share a processor: less for each keeps the time, and the memory, even.
        self.shared = on_host if devices[0].platform == "cpu" else 1

    def array(self, *shape: int, fill: float = 0.5) -> jax.Array:
        """A block of this shape on each device."""
        sharding = NamedSharding(self.mesh, ALL)
        whole = (self.count * shape[0], *shape[1:])
        return jax.jit(lambda: jnp.full(whole, fill, jnp.float32), out_shardings=sharding)()

    def place(self, tree: Any) -> Any:
        """Host arrays of one device, the same on every device, with a leading axis."""
        sharding = NamedSharding(self.mesh, ALL)

        def one(x: np.ndarray) -> jax.Array:
            shape = (self.count * x.shape[0], *x.shape[1:])
            return jax.make_array_from_callback(shape, sharding, lambda index: x)

        return jax.tree.map(one, tree)

    def seconds(self, function: Callable[..., Any], *arguments: Any) -> float:
        """Of running it on every device at once."""
        run = jax.shard_map(function, mesh=self.mesh, in_specs=ALL, out_specs=ALL, check_vma=False)
        return seconds_of(jax.jit(run).lower(*arguments).compile(), *arguments)

    @property
    def platform(self) -> str:
        """As kernels call it."""
        platform = self.mesh.devices.flat[0].platform
        return "gpu" if platform in ("cuda", "rocm") else platform

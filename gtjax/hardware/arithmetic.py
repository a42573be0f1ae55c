"""Times arithmetic on the devices at hand: dense layers, passes over memory, attention.

All devices do the same at once, since that is what they do in a step: simulated devices share the
cores and the caches of one machine, and a figure of one of them alone would be of no use.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gtjax.hardware.profile import AttentionPoint, Compute
from gtjax.hardware.timing import agreed, seconds_of
from pallas_kernels.segment_attention import (
    EdgeList,
    build_stacked_edges,
    choose_backend,
    finish,
    log_sum_exp,
)
from pallas_kernels.segment_attention.api import backend_name

ALL = PartitionSpec("all")
WIDTHS = (32, 64, 128, 256, 512)
PASS_VALUES = 2**23  # of a pass over memory, shared out over the devices of a host

Progress = Callable[[float, str], None]


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


def measure_compute(devices: Sequence[Any], progress: Progress) -> Compute:
    """Time everything that a step is made of, but its collectives."""
    every = Devices(devices)
    progress(0.0, "matrix products")
    matmul = tuple((float(width), _matmul(every, width)) for width in WIDTHS)
    progress(0.3, "passes over memory")
    values = PASS_VALUES // every.shared
    plain = every.array(values // 128, 128)
    stream = 8.0 * values / every.seconds(lambda x: x * 1.5 + 0.5, plain)
    bend = values / every.seconds(_bend, plain)
    gather, scatter = _rows_by_number(every)
    progress(0.5, "attention")
    attention = _attention(every, lambda done, text: progress(0.5 + 0.5 * done, text))
    return Compute(
        matmul=matmul,
        stream=stream,
        bend=bend,
        fresh=_fresh(every),
        gather=gather,
        scatter=scatter,
        attention=attention,
        alone=_alone(every, devices, matmul),
        overlap=_overlap(every),
    )


def _rows_for(every: Devices, width: int) -> int:
    """Rows that make a product last some tens of milliseconds on a core of a processor."""
    return max(64, int(1e9 / (2 * width * width)) // every.shared)


def _matmul(every: Devices, width: int) -> float:
    rows = _rows_for(every, width)
    x, w = every.array(rows, width), every.array(width, width, fill=0.01)
    return 2.0 * rows * width * width / every.seconds(jnp.matmul, x, w)


def _bend(x: jax.Array) -> jax.Array:
    """A normalisation and a GELU, and their derivatives."""

    def run(x: jax.Array) -> jax.Array:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-6)
        return jax.nn.gelu(scaled)

    y, back = jax.vjp(run, x)
    return back(y)[0]


def _rows_by_number(every: Devices) -> tuple[float, float]:
    """Bytes a second of picking a quarter of the rows of a table, and of adding them to one."""
    rows, width = 2**16 // every.shared, 128
    picked = np.sort(np.random.default_rng(0).choice(rows, rows // 4, replace=False))
    rows_s = every.place(picked.astype(np.int32))
    table, some = every.array(rows, width), every.array(rows // 4, width)
    size = 4.0 * width * (rows // 4)
    take = every.seconds(lambda x, s: x.at[s].get(mode="fill", fill_value=0), table, rows_s)

    def put(some: jax.Array, s: jax.Array) -> jax.Array:
        empty = jnp.zeros((rows, width))
        return empty.at[s].add(some, mode="drop", indices_are_sorted=True)

    return size / take, size / every.seconds(put, some, rows_s)


def _fresh(every: Devices) -> float:
    """Seconds that a byte of new memory costs beyond a pass over it, on a processor.

    The operating system clears every page of a program's temporary memory anew for each run.
    """
    if every.mesh.devices.flat[0].platform != "cpu":
        return 0.0
    size = 2**26
    import time

    times = []
    for _ in range(3):
        started = time.perf_counter()
        page = np.empty(size, np.uint8)
        page[::4096] = 1  # touches every page
        times.append(time.perf_counter() - started)
        del page
    # One thread clears; those of several devices clear at once, but share the memory.
    return float(np.median(times)) / size


def _alone(every: Devices, devices: Sequence[Any], matmul: Any) -> float:
    """How many times as fast one device is while the others idle."""
    if every.count == 1 or devices[0].platform != "cpu" or jax.process_count() > 1:
        return 1.0
    one = Devices(devices[:1])
    one.shared = every.shared
    return max(1.0, _matmul(one, 256) / dict(matmul)[256.0])


def _overlap(every: Devices) -> float:
    """Share of a transfer that arithmetic which does not need it hides."""
    if every.count == 1:
        return 0.0
    rows = max(64, 2048 // every.shared)
    x, w = every.array(rows, 256), every.array(256, 256, fill=0.01)
    message = every.array(2**20 // every.shared, 1)
    around = [(d, (d + 1) % every.count) for d in range(every.count)]

    def compute(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(4):
            x = x @ w
        return x

    def move(m: jax.Array) -> jax.Array:
        for _ in range(2):
            m = jax.lax.ppermute(m, "all", around)
        return m

    apart = every.seconds(compute, x, w), every.seconds(move, message)
    both = every.seconds(lambda x, w, m: (compute(x, w), move(m)), x, w, message)
    return float(np.clip((sum(apart) - both) / min(apart), 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class _Case:
    """Attention of random edges: an average degree, heads, and the table that is gathered from."""

    senders: int
    heads: int
    width: int
    degree: int = 8
    skewed: bool = False


# Small tables that stay in a cache and large ones that do not, few and many heads, narrow and wide.
CASES = (
    _Case(2**11, 8, 64),
    _Case(2**11, 8, 256),
    _Case(2**11, 1, 16),
    _Case(2**16, 8, 128),
    _Case(2**16, 8, 128, degree=32),
    _Case(2**16, 8, 128, skewed=True),
    _Case(2**16, 2, 32),
    _Case(2**18, 8, 64),
)
EDGES = 2**19  # of all devices of a host that share a processor


def _attention(every: Devices, progress: Progress) -> tuple[AttentionPoint, ...]:
    name = backend_name("auto", _platform(every))
    points: list[AttentionPoint] = []
    for number, case in enumerate(CASES):
        progress(number / len(CASES), f"attention, {case.heads} heads of {case.width}")
        points += _attention_points(every, name, case)
    return tuple(points)


def _platform(every: Devices) -> str:
    platform = every.mesh.devices.flat[0].platform
    return "gpu" if platform in ("cuda", "rocm") else platform


def _attention_points(every: Devices, name: str, case: _Case) -> list[AttentionPoint]:
    backend, rng = choose_backend(name, _platform(every)), np.random.default_rng(0)
    count = EDGES // every.shared
    rows = max(16, count // case.degree)
    senders = max(64, case.senders // every.shared)
    receivers_e = np.sort(rng.integers(0, rows, count))
    drawn_e = rng.random(count)
    senders_e = (drawn_e ** (4.0 if case.skewed else 1.0) * senders).astype(np.int64)
    edges = every.place(
        build_stacked_edges(
            [EdgeList(senders_e, receivers_e, np.arange(count))],
            num_senders=senders,
            num_receivers=rows,
            layouts=backend.layouts,
        )
    )
    shape = (case.heads, case.width // case.heads)
    q, k, v = every.array(rows, *shape), every.array(senders, *shape), every.array(senders, *shape)

    def forward(edges: Any, q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        own = jax.tree.map(lambda x: x[0], edges)
        partial_r = backend.forward(q, k, v, own, None, None)
        return finish(partial_r), log_sum_exp(partial_r)

    def backward(edges: Any, q: Any, k: Any, v: Any, out: Any, lse: Any) -> Any:
        own = jax.tree.map(lambda x: x[0], edges)
        return backend.backward(q, k, v, own, None, out, lse, out, None)[:3]

    out, lse = every.array(rows, *shape), every.array(rows, case.heads, fill=3.0)
    seconds = {
        "forward": every.seconds(forward, edges, q, k, v),
        "backward": every.seconds(backward, edges, q, k, v, out, lse),
    }
    skew = share_of_busiest(np.bincount(senders_e, minlength=senders))
    point = partial(
        AttentionPoint,
        kernel=name,
        edges=count,
        rows=rows,
        senders=senders,
        heads=case.heads,
        width=case.width,
        skew=skew,
    )
    return [point(direction=way, seconds=agreed(each)) for way, each in seconds.items()]


def share_of_busiest(degrees_s: np.ndarray) -> float:
    """Share of the edges that start from the busiest hundredth of the senders."""
    busiest = math.ceil(len(degrees_s) / 100)
    return float(np.sort(degrees_s)[-busiest:].sum() / max(1, degrees_s.sum()))

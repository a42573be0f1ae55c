"""Times arithmetic on the devices at hand: dense layers, passes over memory, ops.

All devices do the same at once, since that is what they do in a step: simulated devices share the
cores and the caches of one machine, and a figure of one of them alone would be of no use.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.core.progress import Progress
from gtjax.hardware.devices import Devices
from gtjax.hardware.ops import measure_ops
from gtjax.hardware.profile import Compute

WIDTHS = (32, 64, 128, 256, 512)
PASS_VALUES = 2**23  # of a pass over memory, shared out over the devices of a host


def measure_compute(devices: Sequence[Any], progress: Progress) -> Compute:
    """Time everything that a step is made of, but its collectives."""
    every = Devices(devices)
    progress(0.0, "matrix products")
    matmul = tuple((float(width), _matmul(every, width)) for width in WIDTHS)
    progress(0.3, "passes over memory")
    values = PASS_VALUES // every.shared
    plain = every.array(values // 128, 128)
    stream = 8.0 * values / every.seconds(lambda x: x * 1.5 + 0.5, plain)
    bend = values / every.seconds(bend_values, plain)
    gather, scatter = _rows_by_number(every)
    progress(0.5, "ops")
    ops = measure_ops(every, lambda done, text: progress(0.5 + 0.5 * done, text))
    return Compute(
        matmul=matmul,
        stream=stream,
        bend=bend,
        fresh=_fresh(every),
        gather=gather,
        scatter=scatter,
        ops=ops,
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


def bend_values(x: jax.Array) -> jax.Array:
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
    if every.platform != "cpu":
        return 0.0
    size = 2**26
    times = []
    for _ in range(3):
        started = time.perf_counter()
        page = np.empty(size, np.uint8)
        page[::4096] = 1  # touches every page
        times.append(time.perf_counter() - started)
        del page
    return float(np.median(times)) / size * max(1.0, every.shared / (os.cpu_count() or 1))


def _alone(every: Devices, devices: Sequence[Any], matmul: Any) -> float:
    """How many times as fast one device is while the others idle."""
    if every.count == 1 or devices[0].platform != "cpu" or jax.process_count() > 1:
        return 1.0
    one = Devices(devices[:1])
    one.shared = every.shared
    return max(1.0, _matmul(one, 256) / dict(matmul)[256.0])


def _overlap(every: Devices) -> float:
    """Share of a transfer that arithmetic which does not need it hides."""
    if every.count == 1 or every.shared >= (os.cpu_count() or 1):
        return 0.0  # nothing idles that could do it meanwhile
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

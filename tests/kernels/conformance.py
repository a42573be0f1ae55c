"""The back ends that the conformance suite runs over.

A kernel for a device that is not there joins as a `Backend` whose functions interpret it. That
takes seconds to compile for every new shape, so these see one graph with everything awkward in it
instead of one graph each.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import pytest

from pallas_kernels.segment_attention import BACKENDS, Backend, cpu, propagation_cpu

KERNELS = [
    pytest.param(name, id=name)
    for name, backend in BACKENDS.items()
    if jax.default_backend() in backend.platforms and not backend.why_not()
]


def _older(instructions: str) -> Backend:
    """The native kernel as a processor without the newest instructions runs it."""
    functions = (partial(f, instructions=instructions) for f in (cpu.forward, cpu.backward))
    propagation = propagation_cpu.passes(instructions)
    return Backend(*functions, platforms=("cpu",), propagation=propagation)


if "cpu" in [kernel.id for kernel in KERNELS]:
    info = Path("/proc/cpuinfo")
    newer = "avx512f" in (info.read_text(encoding="utf-8").split() if info.exists() else [])
    KERNELS += [
        pytest.param(_older(name), id=f"cpu {name}")
        for name in ("baseline", *(["avx2"] if newer else []))
    ]


def interpreted(name: str, interpret: object = True) -> Backend:
    """A back end of the table, run by Pallas's interpreter."""
    backend = BACKENDS[name]
    functions = (partial(f, interpret=interpret) for f in (backend.forward, backend.backward))
    return Backend(*functions, platforms=("cpu",), layouts=backend.layouts)


INTERPRETED = [pytest.param(interpreted(name), id=f"{name} interpreted") for name in ("gpu", "tpu")]
ALL_KERNELS = KERNELS + INTERPRETED


def on_graphs(kernels, names):
    """One case for each of the kernels on each of the graphs."""
    return [
        pytest.param(name, *kernel.values, id=f"{kernel.id}-{name}")
        for kernel in kernels
        for name in names
    ]

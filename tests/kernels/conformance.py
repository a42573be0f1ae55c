"""The kernels that the conformance suite runs over.

Those of this machine, the native ones also as older processors run them; and those for devices that
are not there, interpreted. Interpreting takes seconds to compile for every new shape, so these see
one graph with everything awkward in it instead of one graph each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import pytest

from pallas_kernels import DOT_PRODUCT, Kernel, Op
from pallas_kernels.passes.xla import XLA_IN_PLACE
from tests.kernels.interpreted import INTERPRETED


def older_instructions() -> list[str]:
    """The sets of instructions that this processor has, but for the newest."""
    info = Path("/proc/cpuinfo")
    has = info.read_text(encoding="utf-8").split() if info.exists() else []
    return ["baseline", *(["avx2"] if "avx512f" in has else [])]


def older(kernel: Kernel, instructions: str) -> Kernel:
    """A native kernel as a processor without the newest instructions runs it."""
    use = partial(partial, instructions=instructions)
    return replace(
        kernel,
        forward=use(kernel.forward),
        backward=use(kernel.backward),
        whole=None if kernel.whole is None else use(kernel.whole),
    )


def native_kernels_of(op: Op, quick: bool = False) -> list:
    """The native kernel, if it is built, in every set of instructions; older ones may be quick."""
    native = [k for k in op.kernels if k.name == "cpu" and not k.why_not()]
    newest = [pytest.param(k, id="cpu") for k in native]
    return newest + [
        pytest.param(older(k, name), id=f"cpu {name}", marks=() if quick else pytest.mark.slow)
        for k in native
        for name in older_instructions()
    ]


def kernels_of(op: Op, quick: bool = False) -> list:
    """Those that run here, and what XLA does on GPUs, which runs anywhere."""
    others = [
        pytest.param(k, id=k.name)
        for k in op.all_kernels()
        if jax.default_backend() in k.platforms and k.name != "cpu" and not k.why_not()
    ]
    in_place = [pytest.param(XLA_IN_PLACE, id="xla in place", marks=pytest.mark.slow)]
    return native_kernels_of(op, quick) + others + in_place


# Of dot-product attention.
KERNELS = kernels_of(DOT_PRODUCT)
ALL_KERNELS = KERNELS + INTERPRETED


def on_graphs(kernels, names):
    """One case for each of the kernels on each of the graphs."""
    return [
        pytest.param(name, *kernel.values, id=f"{kernel.id}-{name}", marks=kernel.marks)
        for kernel in kernels
        for name in names
    ]

"""Kernels for GPUs and TPUs as values, whose code is loaded where one of them runs.

Pallas and its two compilers take a tenth of the time of loading all that a run needs, and on a
machine without such a device nobody uses them.
"""

from __future__ import annotations

import importlib
from functools import partial as bind
from typing import Any

import jax

from pallas_kernels.op import Kernel
from pallas_kernels.passes.traced import Tracer


def gpu_kernel(tracer: Tracer) -> Kernel:
    """The kernel of ops with that message (`gpu_kernel.py`)."""
    forward, backward, whole = (
        bind(_run, f"gpu_kernel:{name}", tracer) for name in ("forward", "backward", "whole")
    )
    return Kernel("gpu", forward, backward, ("gpu",), whole, needs=("pieces",), why_not=_why_no_gpu)


def tpu_kernel(tracer: Tracer) -> Kernel:
    """The kernel of ops with that message (`tpu_kernel.py`)."""
    forth, back = (bind(_run, f"tpu_kernel:{name}", tracer) for name in ("forward", "backward"))
    return Kernel("tpu", forth, back, ("tpu",), needs=("strips",))


def _run(where: str, *arguments: Any, **options: Any) -> Any:
    module, name = where.split(":")
    found = importlib.import_module(f"pallas_kernels.passes.{module}")
    return getattr(found, name)(*arguments, **options)


def _why_no_gpu() -> str | None:
    if jax.default_backend() != "gpu":
        return None
    from pallas_kernels.passes.gpu import why_not

    return why_not()

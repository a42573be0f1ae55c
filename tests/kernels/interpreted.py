"""Kernels for devices that are not there, run by Pallas's interpreter on a CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from pallas_kernels.dot_product.gpu import GPU
from pallas_kernels.dot_product.tpu import TPU
from pallas_kernels.op import Kernel


def interpreted(kernel: Kernel, interpret: object = True) -> Kernel:
    """The same kernel, interpreted; `interpret` is what Pallas calls so."""
    runs = {
        name: partial(run, interpret=interpret)
        for name in ("forward", "backward", "whole")
        if (run := getattr(kernel, name)) is not None
    }
    return replace(kernel, **runs, platforms=("cpu",), why_not=lambda: None)


# Those of dot-product attention.
INTERPRETED = [
    pytest.param(interpreted(kernel), id=f"{kernel.name} interpreted") for kernel in (GPU, TPU)
]

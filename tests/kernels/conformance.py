"""The back ends that the conformance suite runs over.

A kernel for a device that is not there joins as a `Backend` whose functions interpret it.
"""

from __future__ import annotations

import jax
import pytest

from pallas_kernels.segment_attention import BACKENDS

KERNELS = [
    pytest.param(name, id=name)
    for name, backend in BACKENDS.items()
    if jax.default_backend() in backend.platforms and not backend.why_not()
]

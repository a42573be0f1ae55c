"""The native library: what it needs to run, and how its functions are called.

Built when the package is installed, if there is a C++ compiler; where there was none, `why_not`
says so and XLA takes its place. It holds code for several generations of processors (`baseline`,
and on x86 `avx2` and `avx512`) and takes the best that runs; `instructions` is for tests of the
others. Numbers are float32 or bfloat16 in memory and float32 in arithmetic: bfloat16 halves the
bytes that are gathered, which is what bounds the speed.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges

LIBRARY = "_cpu.*"  # beside this file, named as Python extensions are on the platform
TARGETS = (
    "gtjax_softmax_partial",
    "gtjax_softmax",
    "gtjax_softmax_backward_receivers",
    "gtjax_softmax_backward_senders",
    "gtjax_gather",
    "gtjax_sums",
    "gtjax_extremes",
    "gtjax_extremes_backward",
    "gtjax_softmax_weights",
    "gtjax_softmax_gradient",
    "gtjax_reorder",
)


def why_not() -> str | None:
    """What keeps the native code from running here; None if it can."""
    return _load()


@functools.cache
def _load() -> str | None:
    libraries = sorted(Path(__file__).parent.glob(LIBRARY))
    if not libraries:
        return (
            "it was not built, for lack of a C++ compiler when gtjax was installed "
            '(install one and repeat "pip install")'
        )
    try:
        library = ctypes.CDLL(str(libraries[0]))
        targets = [(name, jax.ffi.pycapsule(getattr(library, name))) for name in TARGETS]
    except (OSError, AttributeError) as error:
        return f"its library does not load ({error}); repeat the installation"
    for name, handler in targets:
        jax.ffi.register_ffi_target(name, handler, platform="cpu")
    return None


def edge_data(
    edges: Edges, bias_eh: jax.Array | None, dropout: Dropout | None, heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Edge ids, bias (of no edges if there is none) and seed, as the native code takes them."""
    bias = jnp.zeros((0, heads), jnp.float32) if bias_eh is None else bias_eh.astype(jnp.float32)
    seed = jnp.asarray(0 if dropout is None else dropout.seed, jnp.uint32)
    return edges.edge_ids_e, bias, seed.reshape(1)


def options(dropout: Dropout | None, instructions: str) -> dict[str, Any]:
    """Attributes of a call."""
    rate = np.float64(0.0 if dropout is None else dropout.rate)
    return {"rate": rate, "instructions": instructions}


def one_type(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """All bfloat16 if they are, and float32 otherwise."""
    half = all(array.dtype == jnp.bfloat16 for array in arrays)
    return tuple(array.astype(jnp.bfloat16 if half else jnp.float32) for array in arrays)


def floats(*shapes: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Types of results."""
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)

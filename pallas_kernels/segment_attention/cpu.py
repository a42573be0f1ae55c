"""Attention over edges on the CPU by native code (`cpu.cc`): the fastest there, and the smallest.

Fused, so its temporary memory does not depend on the number of edges. Computes in float32: inputs
of other types are converted. Built when the package is installed, if there is a C++ compiler; where
there was none, `why_not` says so and the XLA back end takes its place.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.segment_attention.types import Dropout, Edges, Partial

LIBRARY = "_cpu.*"  # beside this file, named as Python extensions are on the platform
_FORWARD = "gtjax_attention_forward"
_RECEIVERS = "gtjax_attention_backward_receivers"
_SENDERS = "gtjax_attention_backward_senders"


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
    if missing := _missing_instructions():
        return f"it was built for processors with {missing}"
    try:
        library = ctypes.CDLL(str(libraries[0]))
    except OSError as error:
        return f"its library does not load ({error}); repeat the installation"
    for name in (_FORWARD, _RECEIVERS, _SENDERS):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return None


def _missing_instructions() -> str | None:
    """On x86 the library uses AVX2 and FMA, which every server since 2015 has."""
    info = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not info.exists():
        return None
    flags = set(info.read_text(encoding="utf-8", errors="replace").split())
    return " and ".join({"avx2", "fma"} - flags) or None


def forward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    dropout: Dropout | None = None,
) -> Partial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised."""
    rows, heads, width = q_rhd.shape
    call = jax.ffi.ffi_call(_FORWARD, _floats((rows, heads), (rows, heads), (rows, heads, width)))
    partial = call(
        *_float32(q_rhd, k_shd, v_shd),
        edges.offsets_r,
        edges.senders_e,
        *_edge_data(edges, bias_eh, dropout, heads),
        rate=_rate(dropout),
    )
    return Partial(*partial)


def backward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None,
    out_rhd: jax.Array,
    lse_rh: jax.Array,
    dout_rhd: jax.Array,
    dropout: Dropout | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    heads = q_rhd.shape[1]
    q, k, v, dout = _float32(q_rhd, k_shd, v_shd, dout_rhd)
    edge_data = _edge_data(edges, bias_eh, dropout, heads)
    receivers = jax.ffi.ffi_call(_RECEIVERS, _floats(q.shape, lse_rh.shape, edge_data[1].shape))
    dq, delta, dbias = receivers(
        *(q, k, v, edges.offsets_r, edges.senders_e, *edge_data),
        *(out_rhd, lse_rh, dout),
        rate=_rate(dropout),
    )
    senders = jax.ffi.ffi_call(_SENDERS, _floats(k.shape, v.shape))
    dk, dv = senders(
        *(q, k, v, edges.sender_offsets_s, edges.receivers_by_sender_e, edges.sender_order_e),
        *(*edge_data, lse_rh, delta, dout),
        rate=_rate(dropout),
    )
    return (
        dq.astype(q_rhd.dtype),
        dk.astype(k_shd.dtype),
        dv.astype(v_shd.dtype),
        None if bias_eh is None else dbias.astype(bias_eh.dtype),
    )


def _edge_data(
    edges: Edges, bias_eh: jax.Array | None, dropout: Dropout | None, heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Edge ids, bias (of no edges if there is none) and seed, as the native code takes them."""
    bias = jnp.zeros((0, heads), jnp.float32) if bias_eh is None else bias_eh.astype(jnp.float32)
    seed = jnp.asarray(0 if dropout is None else dropout.seed, jnp.uint32)
    return edges.edge_ids_e, bias, seed.reshape(1)


def _rate(dropout: Dropout | None) -> np.float64:
    return np.float64(0.0 if dropout is None else dropout.rate)


def _float32(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(array.astype(jnp.float32) for array in arrays)


def _floats(*shapes: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)

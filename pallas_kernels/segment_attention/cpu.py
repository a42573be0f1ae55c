"""Attention over edges on the CPU by native code (`native/`): the fastest there, and the smallest.

Fused, so its temporary memory does not depend on the number of edges. Float32 or bfloat16 in
memory, float32 in arithmetic: bfloat16 halves the bytes that are gathered, which is what bounds
the speed. Built when the package is installed, if there is a C++ compiler; where there was none,
`why_not` says so and the XLA back end takes its place.

The library holds code for several generations of processors (`baseline`, and on x86 `avx2` and
`avx512`) and takes the best that runs; `instructions` is for tests of the others.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.segment_attention.types import Dropout, Edges, Partial

LIBRARY = "_cpu.*"  # beside this file, named as Python extensions are on the platform
_PARTIAL = "gtjax_attention_partial"
_ATTENTION = "gtjax_attention"
_RECEIVERS = "gtjax_attention_backward_receivers"
_SENDERS = "gtjax_attention_backward_senders"
_GATHER = "gtjax_gather"
# What propagation_cpu.py calls.
SOFTMAX_WEIGHTS = "gtjax_softmax_weights"
WEIGHTED_SUM = "gtjax_weighted_sum"
SUM_AND_DOTS = "gtjax_weighted_sum_and_dots"
SOFTMAX_GRADIENT = "gtjax_softmax_gradient"
REORDER = "gtjax_reorder"
_TARGETS = (
    *(_PARTIAL, _ATTENTION, _RECEIVERS, _SENDERS, _GATHER),
    *(SOFTMAX_WEIGHTS, WEIGHTED_SUM, SUM_AND_DOTS, SOFTMAX_GRADIENT, REORDER),
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
        targets = [(name, jax.ffi.pycapsule(getattr(library, name))) for name in _TARGETS]
    except (OSError, AttributeError) as error:
        return f"its library does not load ({error}); repeat the installation"
    for name, handler in targets:
        jax.ffi.register_ffi_target(name, handler, platform="cpu")
    return None


def forward(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    dropout: Dropout | None = None,
    instructions: str = "best",
) -> Partial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised."""
    rows, heads, width = q_rhd.shape
    call = jax.ffi.ffi_call(_PARTIAL, floats((rows, heads), (rows, heads), (rows, heads, width)))
    return Partial(
        *call(
            *_forward_operands(q_rhd, k_shd, v_shd, edges, bias_eh, dropout),
            **options(dropout, instructions),
        )
    )


def attention(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    dropout: Dropout | None = None,
    instructions: str = "best",
) -> tuple[jax.Array, jax.Array]:
    """The normalised output and its `lse`, without the detour over a partial in memory."""
    call = jax.ffi.ffi_call(_ATTENTION, floats(q_rhd.shape, q_rhd.shape[:2]))
    out_rhd, lse_rh = call(
        *_forward_operands(q_rhd, k_shd, v_shd, edges, bias_eh, dropout),
        **options(dropout, instructions),
    )
    return out_rhd, lse_rh


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
    instructions: str = "best",
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    rows, heads, _ = q_rhd.shape
    q, k, v, dout = one_type(q_rhd, k_shd, v_shd, dout_rhd)
    of_edges = edge_data(edges, bias_eh, dropout, heads)
    receivers = jax.ffi.ffi_call(_RECEIVERS, floats(q.shape, (rows, 2, heads), of_edges[1].shape))
    dq, stats_r2h, dbias = receivers(
        *(q, k, v, dout, edges.offsets_r, edges.senders_e, *of_edges, out_rhd, lse_rh),
        **options(dropout, instructions),
    )
    senders = jax.ffi.ffi_call(_SENDERS, floats(k.shape, v.shape))
    dk, dv = senders(
        *(q, k, v, dout),
        *(edges.sender_offsets_s, edges.receivers_by_sender_e, edges.sender_order_e),
        *(*of_edges, stats_r2h),
        **options(dropout, instructions),
    )
    return (
        dq.astype(q_rhd.dtype),
        dk.astype(k_shd.dtype),
        dv.astype(v_shd.dtype),
        None if bias_eh is None else dbias.astype(bias_eh.dtype),
    )


def gather_rows(k_shd: jax.Array, v_shd: jax.Array, edges: Edges) -> jax.Array:
    """Read the rows of k and v that a pass over the edges reads, and sum them up for each receiver.

    The least that any fused pass has to do: benchmarks hold `forward` against it.
    """
    rows = edges.offsets_r.shape[0] - 1
    (sums_r,) = jax.ffi.ffi_call(_GATHER, floats((rows,)))(
        *one_type(k_shd, v_shd), edges.offsets_r, edges.senders_e
    )
    return sums_r


def _forward_operands(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None,
    dropout: Dropout | None,
) -> tuple[jax.Array, ...]:
    tables = one_type(q_rhd, k_shd, v_shd)
    of_edges = edge_data(edges, bias_eh, dropout, q_rhd.shape[1])
    return *tables, edges.offsets_r, edges.senders_e, *of_edges


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

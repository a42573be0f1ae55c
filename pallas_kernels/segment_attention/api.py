"""The attention op: picks a back end, and differentiates it by recomputing.

A back end is two functions and a line in `BACKENDS`. Asking for one by name never falls back to
another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial as bind
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.segment_attention import (
    cpu,
    gpu,
    gpu_vjp,
    propagation_cpu,
    propagation_xla,
    tpu,
    tpu_vjp,
    xla,
)
from pallas_kernels.segment_attention.gpu_program import why_not as why_not_gpu
from pallas_kernels.segment_attention.types import (
    Dropout,
    Edges,
    Layout,
    Partial,
    PropagationPasses,
    finish,
    log_sum_exp,
    merge,
)


@dataclass(frozen=True)
class Backend:
    """One way of computing attention, and where it runs."""

    forward: Callable[..., Partial]
    backward: Callable[..., tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]]
    platforms: tuple[str, ...]
    # Output and lse at once, for a back end that need not go over the partial.
    attention: Callable[..., tuple[jax.Array, jax.Array]] | None = None
    layouts: tuple[Layout, ...] = ()  # of the edges, see `build_edges`
    why_not: Callable[[], str | None] = lambda: None  # what keeps it from running here, if anything
    propagation: PropagationPasses = propagation_xla.PASSES


# In order of preference.
BACKENDS: dict[str, Backend] = {
    "cpu": Backend(
        cpu.forward,
        cpu.backward,
        platforms=("cpu",),
        attention=cpu.attention,
        why_not=cpu.why_not,
        propagation=propagation_cpu.PASSES,
    ),
    "gpu": Backend(
        gpu.forward,
        gpu_vjp.backward,
        platforms=("gpu",),
        layouts=("pieces",),
        why_not=why_not_gpu,
    ),
    "tpu": Backend(tpu.forward, tpu_vjp.backward, platforms=("tpu",), layouts=("strips",)),
    "xla": Backend(xla.forward, xla.backward, platforms=("cpu", "gpu", "tpu"), layouts=("tiles",)),
}


def backend_name(kernel: str = "auto", platform: str | None = None) -> str:
    """The name itself if it can run here, or with "auto" the first that can."""
    platform = platform or jax.default_backend()
    if kernel == "auto":
        able = (n for n, b in BACKENDS.items() if platform in b.platforms and not b.why_not())
        return next(able)
    if kernel not in BACKENDS:
        raise ValueError(f"kernel is one of auto, {', '.join(BACKENDS)}; found {kernel!r}")
    if platform not in BACKENDS[kernel].platforms:
        runs_on = ", ".join(BACKENDS[kernel].platforms)
        raise ValueError(f"kernel {kernel!r} runs on {runs_on}; this is {platform}. Use auto.")
    if reason := BACKENDS[kernel].why_not():
        raise ValueError(f"kernel {kernel!r} cannot run: {reason}. Use auto.")
    return kernel


def choose_backend(kernel: str | Backend = "auto", platform: str | None = None) -> Backend:
    """The back end of that name, or with "auto" the first that can run on the platform.

    A `Backend` is taken as it is: for one that is not in the table, or only interpreted here.
    """
    return kernel if isinstance(kernel, Backend) else BACKENDS[backend_name(kernel, platform)]


def segment_attention(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    v_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    *,
    dropout: Dropout | None = None,
    kernel: str | Backend = "auto",
) -> jax.Array:
    """Attention of every receiver over its in-edges, differentiable in q, k, v and bias.

    `bias_eh` is in receiver order. Accumulates in float32; the output has the type of `v_shd`.
    """
    rate, seed = rate_and_seed(dropout)
    q, k, v = (jnp.asarray(array) for array in (q_rhd, k_shd, v_shd))
    bias = None if bias_eh is None else jnp.asarray(bias_eh)
    return _attention(choose_backend(kernel), rate, q, k, v, bias, edges, seed)


class EdgeSet(NamedTuple):
    """Some of the receivers' in-edges, and the table that their senders are numbered in."""

    k_shd: jax.Array
    v_shd: jax.Array
    edges: Edges
    bias_eh: jax.Array | None = None


def segment_attention_over(
    q_rhd: jax.Array,
    sets: Sequence[EdgeSet],
    *,
    dropout: Dropout | None = None,
    kernel: str | Backend = "auto",
) -> jax.Array:
    """Attention of every receiver over several sets of in-edges that have no edge in common.

    Equal to `segment_attention` over all the edges and the concatenated tables, which is not made:
    one partial of the size of the output stands for each set, and nothing more is saved for the
    backward pass than with one set.
    """
    if not sets:
        raise ValueError("attention is over at least one set of edges; found none")
    if len(sets) == 1:
        k_shd, v_shd, edges, bias_eh = sets[0]
        options: dict[str, Any] = {"dropout": dropout, "kernel": kernel}
        return segment_attention(q_rhd, k_shd, v_shd, edges, bias_eh, **options)
    rate, seed = rate_and_seed(dropout)
    tables = [jax.tree.map(jnp.asarray, (s.k_shd, s.v_shd, s.bias_eh)) for s in sets]
    edges = [s.edges for s in sets]
    return _attention_over(choose_backend(kernel), rate, jnp.asarray(q_rhd), tables, edges, seed)


def rate_and_seed(dropout: Dropout | None) -> tuple[float, jax.Array]:
    """The draw of dropout as its parts, one known when compiling and one not."""
    rate = 0.0 if dropout is None else float(dropout.rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout rate is in [0, 1); found {rate}")
    return rate, jnp.asarray(0 if dropout is None else dropout.seed, jnp.uint32)


@bind(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention(backend: Backend, rate: float, q, k, v, bias, edges, seed) -> jax.Array:
    return _forward(backend, rate, q, k, v, bias, edges, seed)[0]


def _forward(backend: Backend, rate: float, q, k, v, bias, edges, seed) -> tuple[jax.Array, Any]:
    operands = (q, k, v, edges, bias, Dropout(rate, seed))
    if backend.attention is not None:
        out, lse = backend.attention(*operands)
    else:
        partial = backend.forward(*operands)
        out, lse = finish(partial), log_sum_exp(partial)
    return out.astype(v.dtype), (q, k, v, bias, edges, seed, out, lse)


def _backward(backend: Backend, rate: float, saved: Any, dout: jax.Array) -> tuple[Any, ...]:
    q, k, v, bias, edges, seed, out, lse = saved
    grads = backend.backward(q, k, v, edges, bias, out, lse, dout, Dropout(rate, seed))
    return *grads, jax.tree.map(no_gradient, edges), no_gradient(seed)


def no_gradient(array: jax.Array) -> np.ndarray:
    """What stands for the gradient of an array of integers."""
    return np.zeros(array.shape, jax.dtypes.float0)


_attention.defvjp(_forward, _backward)


@bind(jax.custom_vjp, nondiff_argnums=(0, 1))
def _attention_over(backend: Backend, rate: float, q, tables, edges, seed) -> jax.Array:
    return _forward_over(backend, rate, q, tables, edges, seed)[0]


def _forward_over(backend: Backend, rate: float, q, tables, edges, seed) -> tuple[jax.Array, Any]:
    partials = (
        backend.forward(q, k, v, some, bias, Dropout(rate, seed))
        for (k, v, bias), some in zip(tables, edges, strict=True)
    )
    partial = reduce(merge, partials)
    out, lse = finish(partial), log_sum_exp(partial)
    return out.astype(tables[0][1].dtype), (q, tables, edges, seed, out, lse)


def _backward_over(backend: Backend, rate: float, saved: Any, dout: jax.Array) -> tuple[Any, ...]:
    q, tables, edges, seed, out, lse = saved
    dq, dtables = jnp.zeros(q.shape, jnp.float32), []
    for (k, v, bias), some in zip(tables, edges, strict=True):
        # Output and lse are those over all sets: the same formula as for one.
        grads = backend.backward(q, k, v, some, bias, out, lse, dout, Dropout(rate, seed))
        dq += grads[0].astype(jnp.float32)
        dtables.append(grads[1:])
    return dq.astype(q.dtype), dtables, jax.tree.map(no_gradient, edges), no_gradient(seed)


_attention_over.defvjp(_forward_over, _backward_over)

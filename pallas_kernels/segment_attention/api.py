"""The attention op: picks a back end, and differentiates it by recomputing.

A back end is two functions and a line in `BACKENDS`. Asking for one by name never falls back to
another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.segment_attention import cpu, gpu, gpu_vjp, tpu, tpu_vjp, xla
from pallas_kernels.segment_attention.gpu_program import why_not as why_not_gpu
from pallas_kernels.segment_attention.types import (
    Dropout,
    Edges,
    Layout,
    Partial,
    finish,
    log_sum_exp,
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


# In order of preference.
BACKENDS: dict[str, Backend] = {
    "cpu": Backend(
        cpu.forward,
        cpu.backward,
        platforms=("cpu",),
        attention=cpu.attention,
        why_not=cpu.why_not,
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
    rate = 0.0 if dropout is None else float(dropout.rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout rate is in [0, 1); found {rate}")
    seed = jnp.asarray(0 if dropout is None else dropout.seed, jnp.uint32)
    q, k, v = (jnp.asarray(array) for array in (q_rhd, k_shd, v_shd))
    bias = None if bias_eh is None else jnp.asarray(bias_eh)
    return _attention(choose_backend(kernel), rate, q, k, v, bias, edges, seed)


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
    return *grads, jax.tree.map(_no_gradient, edges), _no_gradient(seed)


def _no_gradient(array: jax.Array) -> np.ndarray:
    return np.zeros(array.shape, jax.dtypes.float0)


_attention.defvjp(_forward, _backward)

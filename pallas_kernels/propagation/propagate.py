"""Propagation by attention whose weights are computed once: rounds of mixing with a restart.

Choose it where the same queries and keys serve many rounds, as in APPNP with learned weights
(Gasteiger et al. 2019). The weights are the softmax of each receiver's in-edges; every round then
takes v <- (1 - restart) A v + restart v0. Attention called once a round computes the weights every
time, and gathers keys as well as values; here a round gathers values alone. The price is memory:
the weights, [edges, heads], are kept, and one table of values a round, for the backward pass.

Gradients flow through the weights: the backward pass goes through the rounds in reverse over the
edges sorted by sender, adds up what every round has to say about each weight, and takes the sum
through the softmax once.
"""

from __future__ import annotations

from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.dot_product import DOT_PRODUCT
from pallas_kernels.driver import no_gradient, rate_and_seed
from pallas_kernels.edges import Dropout, EdgeForm, Edges
from pallas_kernels.op import Kernel
from pallas_kernels.propagation import cpu, xla
from pallas_kernels.propagation.passes import PropagationPasses


def propagate(
    q_nhd: jax.Array,
    k_nhd: jax.Array,
    v_nhd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None = None,
    *,
    rounds: int,
    restart: float,
    dropout: Dropout | None = None,
    kernel: str | Kernel | PropagationPasses = "auto",
) -> jax.Array:
    """Mix the values of nodes `rounds` times by attention, differentiable in q, k, v and bias.

    Senders and receivers are the same nodes. Dropout draws once, for all rounds. Rows are gathered
    in the type of `k_nhd`, added in float32; the start is mixed in, and the result comes, in the
    type of `v_nhd`. A node without in-edges keeps a share of `restart` of its start.
    """
    if rounds < 1:
        raise ValueError(f"propagation takes at least one round; found {rounds}")
    if not 0.0 <= restart < 1.0:
        raise ValueError(f"restart is in [0, 1); found {restart}")
    rate, seed = rate_and_seed(dropout)
    q, k, v = (jnp.asarray(array) for array in (q_nhd, k_nhd, v_nhd))
    bias = None if bias_eh is None else jnp.asarray(bias_eh)
    passes = kernel if isinstance(kernel, PropagationPasses) else _passes(kernel)
    return _propagate(passes, rounds, restart, rate, q, k, v, bias, edges, seed)


def _passes(kernel: str | Kernel) -> PropagationPasses:
    chosen = DOT_PRODUCT.kernel(kernel) if isinstance(kernel, str) else kernel
    if chosen.name == "cpu":
        return cpu.PASSES
    return xla.PASSES_IN_PLACE if "gpu" in chosen.platforms else xla.PASSES


def propagation_needs(kernel: str | Kernel) -> tuple[EdgeForm, ...]:
    """The forms of the edges that propagation with this kernel works on."""
    return _passes(kernel).needs


@bind(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _propagate(
    passes: PropagationPasses, rounds: int, restart: float, rate: float, q, k, v, bias, edges, seed
) -> jax.Array:
    return _forward(passes, rounds, restart, rate, q, k, v, bias, edges, seed)[0]


def _forward(
    passes: PropagationPasses, rounds: int, restart: float, rate: float, q, k, v, bias, edges, seed
) -> tuple[jax.Array, Any]:
    weights_eh = passes.softmax_weights(q, k, edges, bias, Dropout(rate, seed))
    left_eh = _left(weights_eh, rate)
    start = v.astype(jnp.float32)

    def one_round(values: jax.Array, _: Any) -> tuple[jax.Array, jax.Array]:
        gathered = values.astype(k.dtype)
        mixed = passes.weighted_sum(left_eh, gathered, edges, 1 - restart, start, restart)
        return mixed, gathered

    out, visited = jax.lax.scan(one_round, start, length=rounds)
    saved = (q, k, bias, edges, seed, weights_eh, visited)
    return out.astype(v.dtype), saved


def _backward(
    passes: PropagationPasses,
    rounds: int,
    restart: float,
    rate: float,
    saved: Any,
    dout: jax.Array,
) -> tuple[Any, ...]:
    q, k, bias, edges, seed, weights_eh, visited = saved
    left_by_sender_eh = passes.to_sender_order(_left(weights_eh, rate), edges)

    def one_round(carry: Any, values: jax.Array) -> tuple[Any, None]:
        gradient, dstart, dots = carry
        dstart += restart * gradient
        gradient, dots = passes.sum_and_dots(
            left_by_sender_eh, values, gradient.astype(k.dtype), edges, 1 - restart, dots
        )
        return (gradient, dstart, dots), None

    # A loop and not a program for every round: the memory of one round is that of the next.
    gradient = dout.astype(jnp.float32)
    start = (gradient, jnp.zeros_like(gradient), passes.no_dots(edges, q.shape[1]))
    (gradient, dstart, dots), _ = jax.lax.scan(one_round, start, visited, reverse=True)
    dlogits_eh = passes.softmax_gradient(weights_eh, dots, edges, rate, 1 - restart)
    scale = q.shape[-1] ** -0.5
    dq = passes.weighted_sum(dlogits_eh, k, edges, scale)
    dk = passes.sum_by_sender(passes.to_sender_order(dlogits_eh, edges), q, edges, scale)
    return (
        dq.astype(q.dtype),
        dk.astype(k.dtype),
        (gradient + dstart).astype(dout.dtype),
        None if bias is None else dlogits_eh.astype(bias.dtype),
        jax.tree.map(no_gradient, edges),
        no_gradient(seed),
    )


def _left(weights_eh: jax.Array, rate: float) -> jax.Array:
    """The weights that dropout leaves, scaled up. NaN stays NaN."""
    if not rate:
        return weights_eh
    return jnp.where(weights_eh < 0, 0.0, weights_eh) * (1.0 / (1.0 - rate))


_propagate.defvjp(_forward, _backward)

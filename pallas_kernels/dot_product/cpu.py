"""Dot-product attention on the CPU by native code (`native/softmax.cc`): the fastest there."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import floats, one_type, softmax, why_not
from pallas_kernels.op import Kernel, Op

Sender = tuple[jax.Array, jax.Array]


def forward(
    op: Op,
    q_rhd: jax.Array,
    sender: Sender,
    shared: None,
    edges: Edges,
    bias_eh: jax.Array | None,
    draw: Dropout | None,
    instructions: str = "best",
    *,
    whole: bool = False,
) -> Any:
    """Scores, softmax and weighted sum of values of every row, not yet normalised.

    Or the `whole`: the normalised output and its `lse`, without the detour over a partial.
    """
    rows = _scored(bias_eh, *one_type(q_rhd, *sender))
    run = softmax.whole if whole else softmax.partial
    return run(rows, edges, draw, instructions)


def backward(
    op: Op,
    q_rhd: jax.Array,
    sender: Sender,
    shared: None,
    edges: Edges,
    bias_eh: jax.Array | None,
    out_rhd: jax.Array,
    lse_rh: jax.Array,
    dout_rhd: jax.Array,
    draw: Dropout | None,
    instructions: str = "best",
) -> tuple[jax.Array, Sender, None, jax.Array | None]:
    """Gradients of q, k, v and the bias, recomputed from the inputs and `lse`."""
    k_shd, v_shd = sender
    *tables, dout = one_type(q_rhd, k_shd, v_shd, dout_rhd)
    rows = _scored(bias_eh, *tables)
    d = softmax.backward(rows, edges, out_rhd, lse_rh, dout, draw, instructions)
    return (
        d.receiver.astype(q_rhd.dtype),
        (d.sender.astype(k_shd.dtype), d.values.astype(v_shd.dtype)),
        None,
        None if bias_eh is None else d.edge.astype(bias_eh.dtype),
    )


def gather_rows(k_shd: jax.Array, v_shd: jax.Array | None, edges: Edges) -> jax.Array:
    """Read the rows of k and v that a pass over the edges reads, and sum them up for each receiver.

    The least that any fused pass has to do: benchmarks hold `forward` against it. Without v, the
    rows of one table alone, as sums over neighbours read them.
    """
    count = edges.offsets_r.shape[0] - 1
    other = jnp.zeros((0, *k_shd.shape[1:]), k_shd.dtype) if v_shd is None else v_shd
    (sums_r,) = jax.ffi.ffi_call("gtjax_gather", floats((count,)))(
        *one_type(k_shd, other), edges.offsets_r, edges.senders_e
    )
    return sums_r


def _scored(bias_eh: jax.Array | None, q: jax.Array, k: jax.Array, v: jax.Array) -> softmax.Scored:
    heads = q.shape[1]
    bias = softmax.no_numbers(heads) if bias_eh is None else bias_eh.astype(jnp.float32)
    return softmax.Scored("dot_product", q, k, v, softmax.no_numbers(heads), bias)


WHOLE = partial(forward, whole=True)
CPU = Kernel("cpu", forward, backward, ("cpu",), whole=WHOLE, why_not=why_not)

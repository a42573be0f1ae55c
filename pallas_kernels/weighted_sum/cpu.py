"""Weighted sums and means on the CPU by native code (`native/sums.cc`): the fastest there.

Each edge costs one gathered row forward and one backward, where the gradients of senders and of
weights come of the same pass.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import one_type, options, why_not
from pallas_kernels.native.call import call
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import MeanPartial


def forward(
    op: Op,
    receiver: None,
    x_shd: jax.Array,
    shared: None,
    edges: Edges,
    weight_eh: jax.Array | None,
    draw: Dropout | None,
    instructions: str = "best",
    *,
    whole: bool = False,
) -> Any:
    """The sum over every row's edges, and for a mean their number.

    Or the `whole`: the sum or the mean itself, and for a mean the number of edges.
    """
    x, mean = _with_heads(x_shd), op.reduce.name == "mean"
    _, out = sums(
        *(x, (edges.offsets_r, edges.senders_e), edges, _weights(weight_eh, x)),
        draw=draw,
        mean=mean and whole,
        instructions=instructions,
    )
    out_rhd = out.reshape(-1, *x_shd.shape[1:])
    if not mean:
        return (out_rhd, None) if whole else out_rhd
    count_r = _count(edges)
    return (out_rhd, jnp.maximum(count_r, 1.0)) if whole else MeanPartial(out_rhd, count_r)


def backward(
    op: Op,
    receiver: None,
    x_shd: jax.Array,
    shared: None,
    edges: Edges,
    weight_eh: jax.Array | None,
    out_rhd: jax.Array,
    count_r: jax.Array | None,
    dout_rhd: jax.Array,
    draw: Dropout | None,
    instructions: str = "best",
) -> tuple[None, jax.Array, None, jax.Array | None]:
    """Gradients of the senders' rows and of the weights: the same sum, over edges by sender."""
    x, dout = one_type(_with_heads(x_shd), _with_heads(dout_rhd))
    dweight_eh, dx = sums(
        *(dout, (edges.sender_offsets_s, edges.receivers_by_sender_e), edges),
        _weights(weight_eh, x),
        own=None if weight_eh is None else x,
        order_e=edges.sender_order_e,
        draw=draw,
        shares=None if count_r is None else 1.0 / count_r,
        instructions=instructions,
    )
    dx = dx.reshape(x_shd.shape).astype(x_shd.dtype)
    if weight_eh is None:
        return None, dx, None, None
    return None, dx, None, dweight_eh.reshape(weight_eh.shape).astype(weight_eh.dtype)


def sums(
    far: jax.Array,
    rows: tuple[Any, Any],
    edges: Edges,
    weights: jax.Array | None,
    *,
    own: jax.Array | None = None,
    order_e: Any = None,
    draw: Dropout | None = None,
    shares: jax.Array | None = None,
    start: jax.Array | None = None,
    factor: float = 1.0,
    restart: float = 0.0,
    mean: bool = False,
    before: jax.Array | None = None,
    instructions: str = "best",
) -> tuple[jax.Array, jax.Array]:
    """Dots `[edges, heads]`, if there are `own` rows, and sums `[rows, heads, width]`.

    rows:    offsets and columns of the edges, which are in receiver order, or else `order_e` says
             where they are there. Weights are looked up, and dots written, by that position.
    shares:  a factor for each of the far rows.
    before:  what dots are added to; it is gone then.
    """
    _, heads, width = far.shape
    none = jnp.zeros((0, heads), jnp.float32)
    none_3d = jnp.zeros((0, heads, width), jnp.float32)
    seed = jnp.asarray(0 if draw is None else draw.seed, jnp.uint32).reshape(1)
    count = rows[0].shape[0] - 1
    of_dots = (0 if own is None else edges.num_edges, heads)
    dots_eh, sums_nhd = call(
        "gtjax_sums",
        [
            (none if before is None else before, 1),
            (none if weights is None else weights, 1),
            (far, 1),
            (none_3d.astype(far.dtype) if own is None else own, 1),
            *((each, None) for each in rows),
            (jnp.zeros(0, jnp.int32) if order_e is None else order_e, None),
            (edges.edge_ids_e, None),
            (seed, None if draw is None else 0),
            (jnp.zeros(0, jnp.float32) if shares is None else shares, None),
            (none_3d if start is None else start.astype(jnp.float32), 1),
        ],
        [(of_dots, 1), ((count, heads, width), 1)],
        {} if before is None else {0: 0},
        factor=np.float64(factor),
        restart=np.float64(restart),
        mean=mean,
        **options(draw, instructions),
    )
    return dots_eh, sums_nhd


def _with_heads(rows: jax.Array) -> jax.Array:
    """As [rows, heads, width], float32 or bfloat16."""
    (rows,) = one_type(rows)
    return rows.reshape(rows.shape[0], math.prod(rows.shape[1:-1]), rows.shape[-1])


def _weights(weight_eh: jax.Array | None, x: jax.Array) -> jax.Array | None:
    return None if weight_eh is None else weight_eh.astype(jnp.float32).reshape(-1, x.shape[1])


def _count(edges: Edges) -> jax.Array:
    offsets_r = jnp.asarray(edges.offsets_r)
    return (offsets_r[1:] - offsets_r[:-1]).astype(jnp.float32)


WHOLE = partial(forward, whole=True)
CPU = Kernel("cpu", forward, backward, ("cpu",), whole=WHOLE, why_not=why_not)

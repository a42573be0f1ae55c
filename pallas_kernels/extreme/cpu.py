"""Extremes on the CPU by native code (`native/extremes.cc`): the fastest there."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import one_type, why_not
from pallas_kernels.native.call import call
from pallas_kernels.op import Kernel, Op
from pallas_kernels.reductions import ExtremePartial, no_dropout


def forward(
    op: Op,
    receiver: None,
    x_sf: jax.Array,
    shared: None,
    edges: Edges,
    edge: None,
    draw: Dropout | None,
    instructions: str = "best",
    *,
    whole: bool = False,
) -> ExtremePartial | tuple[jax.Array, jax.Array]:
    """The largest of every row's edges, times the sign of the op, and how many have it.

    Or the `whole`: the extreme itself, 0 over no edges, and how many edges have it.
    """
    if draw is not None:
        no_dropout(op.reduce.name)
    x = _table(x_sf)
    shape = (edges.offsets_r.shape[0] - 1, *x.shape[1:])
    best, ties = call(
        "gtjax_extremes",
        [(x, 1), (edges.offsets_r, None), (edges.senders_e, None)],
        [(shape, 1), (shape, 1)],
        largest=op.reduce.name == "max",
        finish=whole,
        instructions=instructions,
    )
    found = (best.reshape(-1, *x_sf.shape[1:]), ties.reshape(-1, *x_sf.shape[1:]))
    return found if whole else ExtremePartial(*found)


def backward(
    op: Op,
    receiver: None,
    x_sf: jax.Array,
    shared: None,
    edges: Edges,
    edge: None,
    out_rf: jax.Array,
    ties_rf: jax.Array,
    dout_rf: jax.Array,
    draw: Dropout | None,
    instructions: str = "best",
) -> tuple[None, jax.Array, None, None]:
    """A share of every row's gradient to the senders that have its extreme."""
    x = _table(x_sf)
    share = dout_rf.astype(jnp.float32) / jnp.maximum(ties_rf, 1.0)
    # The extreme is one of the senders' numbers: in their type it loses nothing.
    out = out_rf.astype(x.dtype)
    (dx,) = call(
        "gtjax_extremes_backward",
        [
            *((x, 1), (_table(out), 1), (_table(share), 1)),
            *((edges.sender_offsets_s, None), (edges.receivers_by_sender_e, None)),
        ],
        [(x.shape, 1)],
        instructions=instructions,
    )
    return None, dx.reshape(x_sf.shape).astype(x_sf.dtype), None, None


def _table(rows: jax.Array) -> jax.Array:
    """As [rows, 1, width], float32 or bfloat16."""
    (rows,) = one_type(rows)
    return rows.reshape(rows.shape[0], 1, -1)


WHOLE = partial(forward, whole=True)
CPU = Kernel("cpu", forward, backward, ("cpu",), whole=WHOLE, why_not=why_not)

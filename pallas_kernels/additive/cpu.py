"""GAT and GATv2 on the CPU by native code (`native/softmax.cc`): the fastest there."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import one_type, softmax, why_not
from pallas_kernels.op import Kernel, Op

Rows = Any  # as in `op.py`


def forward(
    op: Op,
    receiver: jax.Array,
    sender: Rows,
    shared: jax.Array | None,
    edges: Edges,
    edge: jax.Array | None,
    draw: Dropout | None,
    instructions: str = "best",
    *,
    whole: bool = False,
) -> Any:
    """Scores, softmax and weighted sum of values of every row, not yet normalised.

    Or the `whole`: the normalised output and its `lse`, without the detour over a partial.
    """
    rows, _ = _scored(op, receiver, sender, shared, edge)
    run = softmax.whole if whole else softmax.partial
    return run(rows, edges, draw, instructions)


def backward(
    op: Op,
    receiver: jax.Array,
    sender: Rows,
    shared: jax.Array | None,
    edges: Edges,
    edge: jax.Array | None,
    out_rhd: jax.Array,
    lse_rh: jax.Array,
    dout_rhd: jax.Array,
    draw: Dropout | None,
    instructions: str = "best",
) -> tuple[jax.Array, Rows, jax.Array | None, jax.Array | None]:
    """Gradients of all rows, recomputed from the inputs and `lse`."""
    rows, dout = _scored(op, receiver, sender, shared, edge, dout_rhd)
    d = softmax.backward(rows, edges, out_rhd, lse_rh, dout, draw, instructions)
    if rows.score == "gat":
        t_sh, v_shd = sender
        d_sender: Rows = (d.sender.astype(t_sh.dtype), d.values.astype(v_shd.dtype))
    else:
        d_sender = d.sender.astype(sender.dtype)
    return (
        d.receiver.astype(receiver.dtype),
        d_sender,
        None if shared is None else d.shared.astype(shared.dtype),
        None if edge is None else d.edge.astype(edge.dtype),
    )


def _scored(
    op: Op,
    receiver: jax.Array,
    sender: Rows,
    shared: jax.Array | None,
    edge: jax.Array | None,
    *dout: jax.Array,
) -> tuple[softmax.Scored, Any]:
    """The rows as the native code takes them, and dout, if given, in the type of its tables."""
    slope = op.message.slope  # pyright: ignore[reportFunctionMemberAccess]
    if op.name == "gat":
        t_sh, v_shd = sender
        v, *left_over = one_type(v_shd, *dout)
        s, t = receiver.astype(jnp.float32), t_sh.astype(jnp.float32)
        none = softmax.no_numbers(s.shape[1])
        bias = none if edge is None else edge.astype(jnp.float32)
        rows = softmax.Scored("gat", s, t, v, none, bias, slope)
    else:
        assert shared is not None
        features = jnp.zeros((0, *sender.shape[1:]), sender.dtype) if edge is None else edge
        left, right, features, *left_over = one_type(receiver, sender, features, *dout)
        a = shared.astype(jnp.float32)
        rows = softmax.Scored("gatv2", left, right, right, a, features, slope)
    return rows, left_over[0] if left_over else None


WHOLE = partial(forward, whole=True)
CPU = Kernel("cpu", forward, backward, ("cpu",), whole=WHOLE, why_not=why_not)

"""Softmax attention over edges by native code (`native/softmax.cc`), whatever scores them.

The ops that have it say how their rows are to be read; everything else is the same for all. Fused,
so its temporary memory does not depend on the number of edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import floats, options
from pallas_kernels.reductions import SoftmaxPartial


class Scored(NamedTuple):
    """Rows as the native code takes them: `[rows, heads, width]`, of one type where not said."""

    score: str  # dot_product, gat or gatv2
    receiver: jax.Array  # for gat [rows, heads] in float32
    sender: jax.Array  # for gat [rows, heads] in float32
    values: jax.Array  # of senders
    shared: jax.Array  # float32: [heads, width] for gatv2, of no numbers otherwise
    edge: jax.Array  # bias in float32 [edges, heads], for gatv2 [edges, heads, width]; or of none
    slope: float = 0.0


class Gradients(NamedTuple):
    """In float32; of values only where they are not the senders' rows themselves (gatv2)."""

    receiver: jax.Array
    sender: jax.Array
    values: jax.Array
    shared: jax.Array
    edge: jax.Array


def partial(rows: Scored, edges: Edges, draw: Dropout | None, instructions: str) -> SoftmaxPartial:
    """Scores, softmax and weighted sum of values of every row, not yet normalised."""
    of_heads, of_values = _shapes(rows)
    call = jax.ffi.ffi_call("gtjax_softmax_partial", floats(of_heads, of_heads, of_values))
    operands = _operands(rows, edges.offsets_r, edges.senders_e, edges, draw)
    return SoftmaxPartial(*call(*operands, **_options(rows, draw, instructions)))


def whole(
    rows: Scored, edges: Edges, draw: Dropout | None, instructions: str
) -> tuple[jax.Array, jax.Array]:
    """The normalised output and its `lse`, without the detour over a partial in memory."""
    of_heads, of_values = _shapes(rows)
    call = jax.ffi.ffi_call("gtjax_softmax", floats(of_values, of_heads))
    operands = _operands(rows, edges.offsets_r, edges.senders_e, edges, draw)
    out_rhd, lse_rh = call(*operands, **_options(rows, draw, instructions))
    return out_rhd, lse_rh


def backward(
    rows: Scored,
    edges: Edges,
    out_rhd: jax.Array,
    lse_rh: jax.Array,
    dout_rhd: jax.Array,
    draw: Dropout | None,
    instructions: str,
) -> Gradients:
    """Gradients of all rows, recomputed from the inputs and `lse`; `dout` in the values' type."""
    (count, heads), _ = _shapes(rows)
    how = _options(rows, draw, instructions)
    of_receivers = floats(
        rows.receiver.shape, (count, 2, heads), rows.edge.shape, rows.shared.shape
    )
    d_receiver, stats_r2h, d_edge, d_shared = jax.ffi.ffi_call(
        "gtjax_softmax_backward_receivers", of_receivers
    )(
        *_operands(rows, edges.offsets_r, edges.senders_e, edges, draw),
        *(dout_rhd, out_rhd, lse_rh),
        **how,
    )
    shared_rows = rows.score == "gatv2"
    of_values = (0, *rows.values.shape[1:]) if shared_rows else rows.values.shape
    d_sender, d_values = jax.ffi.ffi_call(
        "gtjax_softmax_backward_senders", floats(rows.sender.shape, of_values)
    )(
        *_operands(rows, edges.sender_offsets_s, edges.receivers_by_sender_e, edges, draw),
        *(dout_rhd, stats_r2h, edges.sender_order_e),
        **how,
    )
    return Gradients(d_receiver, d_sender, d_values, d_shared, d_edge)


def no_numbers(*shape: int) -> jax.Array:
    """What stands for an array that is not there."""
    return jnp.zeros((0, *shape), jnp.float32)


def _shapes(rows: Scored) -> tuple[tuple[int, ...], tuple[int, ...]]:
    of_values = (rows.receiver.shape[0], *rows.values.shape[1:])
    return of_values[:2], of_values


def _operands(
    rows: Scored, offsets: Any, columns: Any, edges: Edges, draw: Dropout | None
) -> tuple[Any, ...]:
    seed = jnp.asarray(0 if draw is None else draw.seed, jnp.uint32).reshape(1)
    tables = (rows.receiver, rows.sender, rows.values, rows.shared)
    return *tables, offsets, columns, edges.edge_ids_e, rows.edge, seed


def _options(rows: Scored, draw: Dropout | None, instructions: str) -> dict[str, Any]:
    return options(draw, instructions) | {"score": rows.score, "slope": np.float64(rows.slope)}

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
from pallas_kernels.native import options
from pallas_kernels.native.call import Given, call
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
    operands = _operands(rows, edges.offsets_r, edges.senders_e, edges, draw)
    results = [(of_heads, 1), (of_heads, 1), (of_values, 1)]
    how = _options(rows, draw, instructions)
    return SoftmaxPartial(*call("gtjax_softmax_partial", operands, results, **how))


def whole(
    rows: Scored, edges: Edges, draw: Dropout | None, instructions: str
) -> tuple[jax.Array, jax.Array]:
    """The normalised output and its `lse`, without the detour over a partial in memory."""
    of_heads, of_values = _shapes(rows)
    operands = _operands(rows, edges.offsets_r, edges.senders_e, edges, draw)
    how = _options(rows, draw, instructions)
    out_rhd, lse_rh = call("gtjax_softmax", operands, [(of_values, 1), (of_heads, 1)], **how)
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
    of_shared = 0 if rows.score == "gatv2" else 1
    d_receiver, stats_r2h, d_edge, d_shared = call(
        "gtjax_softmax_backward_receivers",
        [
            *_operands(rows, edges.offsets_r, edges.senders_e, edges, draw),
            *((dout_rhd, 1), (out_rhd, 1), (lse_rh, 1)),
        ],
        [
            *((rows.receiver.shape, 1), ((count, 2, heads), 2), (rows.edge.shape, 1)),
            (rows.shared.shape, of_shared),
        ],
        **how,
    )
    shared_rows = rows.score == "gatv2"
    of_values = (0, *rows.values.shape[1:]) if shared_rows else rows.values.shape
    d_sender, d_values = call(
        "gtjax_softmax_backward_senders",
        [
            *_operands(rows, edges.sender_offsets_s, edges.receivers_by_sender_e, edges, draw),
            *((dout_rhd, 1), (stats_r2h, 2), (edges.sender_order_e, None)),
        ],
        [(rows.sender.shape, 1), (of_values, 1)],
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
) -> tuple[Given, ...]:
    """Arrays, and the axis of heads of each."""
    seed = jnp.asarray(0 if draw is None else draw.seed, jnp.uint32).reshape(1)
    shared = (rows.shared, 0 if rows.score == "gatv2" else 1)
    tables = ((rows.receiver, 1), (rows.sender, 1), (rows.values, 1), shared)
    of_edges = ((offsets, None), (columns, None), (edges.edge_ids_e, None), (rows.edge, 1))
    return *tables, *of_edges, (seed, 0 if draw is not None else None)


def _options(rows: Scored, draw: Dropout | None, instructions: str) -> dict[str, Any]:
    return options(draw, instructions) | {"score": rows.score, "slope": np.float64(rows.slope)}

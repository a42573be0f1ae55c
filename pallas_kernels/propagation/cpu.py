"""The passes of propagation on the CPU by native code (`native/propagation.cc`, `sums.cc`).

Per round and direction each edge costs one gathered row, where attention gathers two forward and
four backward, and `heads` numbers read in order. See `native` for what is built and when.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.edges.dropout import Dropout
from pallas_kernels.edges.edges import Edges
from pallas_kernels.native import edge_data, one_type, options
from pallas_kernels.native.call import call
from pallas_kernels.propagation.passes import PropagationPasses
from pallas_kernels.weighted_sum.cpu import sums


def softmax_weights(
    q_rhd: jax.Array,
    k_shd: jax.Array,
    edges: Edges,
    bias_eh: jax.Array | None,
    dropout: Dropout,
    *,
    instructions: str = "best",
) -> jax.Array:
    """Weights of all edges, negative where dropped."""
    q, k = one_type(q_rhd, k_shd)
    heads = q.shape[1]
    ids_e, bias, seed = edge_data(edges, bias_eh, dropout, heads)
    (weights_eh,) = call(
        "gtjax_softmax_weights",
        [
            *((q, 1), (k, 1), (edges.offsets_r, None), (edges.senders_e, None)),
            *((ids_e, None), (bias, 1), (seed, 0 if dropout.rate else None)),
        ],
        [((edges.num_edges, heads), 1)],
        **options(dropout, instructions),
    )
    return weights_eh


def weighted_sum(
    weights_eh: jax.Array,
    x_shd: jax.Array,
    edges: Edges,
    factor: float,
    start_rhd: jax.Array | None = None,
    restart: float = 0.0,
    *,
    instructions: str = "best",
) -> jax.Array:
    """Sum over each receiver's edges, times a factor, plus a share of `start_rhd`."""
    (x,) = one_type(x_shd)
    rows = (edges.offsets_r, edges.senders_e)
    use: Any = {"factor": factor, "restart": restart, "instructions": instructions}
    return sums(x, rows, edges, weights_eh, start=start_rhd, **use)[1]


def sum_by_sender(
    weights_by_sender_eh: jax.Array,
    y_rhd: jax.Array,
    edges: Edges,
    factor: float,
    *,
    instructions: str = "best",
) -> jax.Array:
    """Sum over each sender's edges, times a factor."""
    (y,) = one_type(y_rhd)
    rows = (edges.sender_offsets_s, edges.receivers_by_sender_e)
    return sums(y, rows, edges, weights_by_sender_eh, factor=factor, instructions=instructions)[1]


def to_sender_order(
    weights_eh: jax.Array, edges: Edges, *, instructions: str = "best"
) -> jax.Array:
    """The same numbers in the order of the edges by sender."""
    return _reorder(weights_eh, edges, back=False, instructions=instructions)


def _reorder(array_eh: jax.Array, edges: Edges, *, back: bool, instructions: str) -> jax.Array:
    (result_eh,) = call(
        "gtjax_reorder",
        [(array_eh, 1), (edges.sender_order_e, None), (edges.sender_offsets_s, None)],
        [(array_eh.shape, 1)],
        back=back,
        instructions=instructions,
    )
    return result_eh


def no_dots(edges: Edges, heads: int) -> jax.Array:
    """Nothing yet, for every edge in sender order."""
    return jnp.zeros((edges.num_edges, heads), jnp.float32)


def sum_and_dots(
    weights_by_sender_eh: jax.Array,
    x_shd: jax.Array,
    y_rhd: jax.Array,
    edges: Edges,
    factor: float,
    dots: jax.Array,
    *,
    instructions: str = "best",
) -> tuple[jax.Array, jax.Array]:
    """`sum_by_sender` of y, and for each edge the product of its ends added to `dots`."""
    x, y = one_type(x_shd, y_rhd)
    rows = (edges.sender_offsets_s, edges.receivers_by_sender_e)
    use: Any = {"factor": factor, "before": dots, "instructions": instructions}
    dots_eh, sums_shd = sums(y, rows, edges, weights_by_sender_eh, own=x, **use)
    return sums_shd, dots_eh


def softmax_gradient(
    weights_eh: jax.Array,
    dots: jax.Array,
    edges: Edges,
    rate: float,
    factor: float,
    *,
    instructions: str = "best",
) -> jax.Array:
    """Gradients of the logits from those of the weights, which are `dots` times a factor."""
    dweights_eh = _reorder(dots, edges, back=True, instructions=instructions)
    (dlogits_eh,) = call(
        "gtjax_softmax_gradient",
        [(weights_eh, 1), (dweights_eh, 1), (edges.offsets_r, None)],
        [(weights_eh.shape, 1)],
        rate=np.float64(rate),
        factor=np.float64(factor),
        instructions=instructions,
    )
    return dlogits_eh


def passes(instructions: str = "best") -> PropagationPasses:
    """All of them; with other instructions than the best for tests of those."""
    use = {"instructions": instructions}
    return PropagationPasses(
        softmax_weights=partial(softmax_weights, **use),
        weighted_sum=partial(weighted_sum, **use),
        to_sender_order=partial(to_sender_order, **use),
        sum_by_sender=partial(sum_by_sender, **use),
        no_dots=no_dots,
        sum_and_dots=partial(sum_and_dots, **use),
        softmax_gradient=partial(softmax_gradient, **use),
        needs=(),
    )


PASSES = passes()

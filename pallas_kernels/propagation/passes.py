"""What propagation is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from pallas_kernels.edges.edges import EdgeForm


@dataclass(frozen=True)
class PropagationPasses:
    """What propagation (`propagate.py`) is made of, as one back end computes it.

    Arrays [edges, heads] are in receiver order, or in sender order where that is said. The weights
    of a softmax are negative where dropout takes them away: their size is what the gradient needs.
    """

    softmax_weights: Callable[..., jax.Array]  # (q, k, edges, bias, dropout) -> weights
    weighted_sum: Callable[..., jax.Array]  # (weights, x, edges, factor, start, restart) -> rows
    to_sender_order: Callable[..., jax.Array]  # (weights, edges) -> weights in sender order
    sum_by_sender: Callable[..., jax.Array]  # (weights in sender order, y, edges, factor) -> rows
    no_dots: Callable[..., Any]  # (edges, heads) -> dots, all zero
    # (weights in sender order, x, y, edges, factor, dots) -> rows, dots
    sum_and_dots: Callable[..., tuple[jax.Array, Any]]
    softmax_gradient: Callable[..., jax.Array]  # (weights, dots, edges, rate, factor) -> dlogits
    needs: tuple[EdgeForm, ...]  # of the edges, see `build_edges`

"""Any jax function of an edge, reduced by name: what makes any GNN possible.

`message(receiver_row, sender_row, edge_row, shared)` gives a value, or (logit, value) for softmax.
It runs in XLA, chunk by chunk, and is computed again in the backward pass, so that memory does not
grow with the number of edges. Choose it for what none of the other ops is; they are several times
faster on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from pallas_kernels.driver import segment
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Op, Split
from pallas_kernels.reductions import REDUCTIONS


def custom(
    message: Callable[[Any, Any, Any, Any], Any],
    reduce: str = "sum",
    splits: Split = None,
) -> Op:
    """An op of one's own; see `Split` for what `splits` promises."""
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce is one of {', '.join(REDUCTIONS)}; found {reduce!r}")
    return Op("custom", message, REDUCTIONS[reduce], () if splits is None else (splits,))


def segment_custom(
    message: Callable[[Any, Any, Any, Any], Any],
    edges: Edges,
    *,
    receiver: Any = None,
    sender: Any = None,
    edge: Any = None,
    shared: Any = None,
    reduce: str = "sum",
    dropout: Dropout | None = None,
) -> Float[Array, "r ..."]:
    """Messages of all edges, reduced over every receiver's in-edges."""
    rows = {"receiver": receiver, "sender": sender, "edge": edge, "shared": shared}
    return segment(custom(message, reduce), edges, **rows, dropout=dropout)

"""Weighted sums and means of neighbours' rows: GCN, GraphSAGE, GIN, and propagation.

Weights are per edge and head, with their gradient, or none at all: the symmetric weights of GCN
(Kipf and Welling 2017) are a factor of each end, which costs nothing per edge. An edge costs one
row of its sender, half of what attention gathers.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
from jaxtyping import Array, Float

from pallas_kernels.driver import segment
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op, Split
from pallas_kernels.reductions import MEAN, SUM
from pallas_kernels.weighted_sum.cpu import CPU
from pallas_kernels.weighted_sum.gpu import GPU
from pallas_kernels.weighted_sum.tpu import TPU


def weighted_row(receiver: None, x_hd: jax.Array, weight_h: Any, shared: None) -> jax.Array:
    """The sender's row, times the weight of the edge if there is one: `[h]` for rows `[h, d]`."""
    return x_hd if weight_h is None else weight_h[..., None] * x_hd


# Rows are [heads, channels]: with several heads these are shared out, with one the channels.
SPLITS: tuple[Split, ...] = ("heads", "channels")
KERNELS = (CPU, GPU, TPU)
WEIGHTED_SUM = Op("weighted_sum", weighted_row, SUM, splits=SPLITS, kernels=KERNELS)
WEIGHTED_MEAN = Op("weighted_mean", weighted_row, MEAN, splits=SPLITS, kernels=KERNELS)


def segment_sum(
    x_shd: Float[Array, "s h d"],
    edges: Edges,
    weight_eh: Float[Array, "e h"] | None = None,
    *,
    reduce: Literal["sum", "mean"] = "sum",
    dropout: Dropout | None = None,
    kernel: str | Kernel = "auto",
) -> Float[Array, "r h d"]:
    """The sum, or the mean, of senders' rows over every receiver's in-edges."""
    op = WEIGHTED_SUM if reduce == "sum" else WEIGHTED_MEAN
    return segment(op, edges, sender=x_shd, edge=weight_eh, dropout=dropout, kernel=kernel)

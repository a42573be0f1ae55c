"""Ops whose results are numbers of edges, for weights that serve many rounds of propagation.

The softmax of each receiver's edges from ops that run under every strategy: logits of edges, their
largest, exponentials, sums and shares. It keeps `[edges, heads]` numbers, unlike attention, which
keeps none: choose it where the same weights are used again and again.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.op import Op
from pallas_kernels.reductions import EACH, MAX, SUM


def logit(q_hd: jax.Array, k_hd: jax.Array, bias_h: Any, shared: None) -> jax.Array:
    """Scaled dot product of every head."""
    logits_h = (q_hd * k_hd).sum(axis=-1) * q_hd.shape[-1] ** -0.5
    return logits_h if bias_h is None else logits_h + bias_h


def edge_row(receiver: None, sender: None, edge_h: jax.Array, shared: None) -> jax.Array:
    """The row of the edge."""
    return edge_h


def above(most_h: jax.Array, sender: None, logits_h: jax.Array, shared: None) -> jax.Array:
    """Exponential of a logit over the largest of the receiver."""
    return jnp.exp(logits_h - most_h)


def share(total_h: jax.Array, sender: None, numbers_h: jax.Array, shared: None) -> jax.Array:
    """A number over the receiver's total."""
    return numbers_h / total_h


LOGITS = Op("edge_logits", logit, EACH, splits=("heads",))
EDGE_MAX = Op("edge_max", edge_row, MAX, splits=("heads",))
EDGE_SUM = Op("edge_sum", edge_row, SUM, splits=("heads",))
EDGE_EXP = Op("edge_exp", above, EACH, splits=("heads",))
EDGE_SHARE = Op("edge_share", share, EACH, splits=("heads",))

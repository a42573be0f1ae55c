"""Scores of answers, as functions on devices: sums over masks, so padding counts nothing.

Nothing here cares how rows are spread over devices.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def masked_mean(values: jax.Array, counted: jax.Array) -> jax.Array:
    """Mean over what is counted; NaN over nothing."""
    return jnp.where(counted, values, 0.0).sum() / jnp.where(counted.any(), counted.sum(), jnp.nan)


def roc_auc(score_n: jax.Array, positive_n: jax.Array, counted_n: jax.Array) -> jax.Array:
    """Chance that a positive scores above a negative, ties counting half; NaN without both.

    Ranks are divided by the number of rows before they are summed, so that float32 is enough.
    """
    score_n = jnp.where(counted_n, score_n, jnp.inf)
    ordered = jnp.sort(score_n)
    below_n = jnp.searchsorted(ordered, score_n, side="left")
    up_to_n = jnp.searchsorted(ordered, score_n, side="right")
    positive_n = positive_n & counted_n
    positives = positive_n.sum()
    negatives = counted_n.sum() - positives
    count = jnp.maximum(positives + negatives, 1)
    rank_n = (below_n + up_to_n + 1) / (2 * count)
    mean_rank = masked_mean(rank_n, positive_n) * count
    return (mean_rank - (positives + 1) / 2) / jnp.where(negatives > 0, negatives, jnp.nan)


def average_precision(score_n: jax.Array, positive_n: jax.Array, counted_n: jax.Array) -> jax.Array:
    """Mean over positives of the precision among all that score at least as high."""
    positive_n = positive_n & counted_n

    def at_least(chosen_n: jax.Array) -> jax.Array:
        ordered = jnp.sort(jnp.where(chosen_n, score_n, -jnp.inf))
        return len(ordered) - jnp.searchsorted(ordered, score_n, side="left")

    return masked_mean(at_least(positive_n) / jnp.maximum(at_least(counted_n), 1), positive_n)


def ranks_among(
    score_n: jax.Array, counted_n: jax.Array, other_m: jax.Array, counted_m: jax.Array
) -> jax.Array:
    """Place of each score among the others that are counted, from 1; ties are shared."""
    ordered = jnp.sort(jnp.where(counted_m, other_m, -jnp.inf))
    above_n = len(ordered) - jnp.searchsorted(ordered, score_n, side="right")
    not_below_n = len(ordered) - jnp.searchsorted(ordered, score_n, side="left")
    return jnp.where(counted_n, 1 + (above_n + not_below_n) / 2, jnp.inf)

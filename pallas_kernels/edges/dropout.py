"""Dropout by hashing the number of an edge, so that every split of the edges drops the same.

A hash and not a random stream: the same in every back end and under every split of the edges, and
the backward pass draws it again instead of storing it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# By how much the heads of the hash that draws dropout are apart.
HEAD_STEP = np.uint32(0x9E3779B9)


class Dropout(NamedTuple):
    """Attention dropout: which share of the (edge, head) pairs to drop, and which draw of them."""

    rate: float
    seed: jax.Array | int

    def from_head(self, first: jax.Array | int) -> Dropout:
        """The same draw for some of the heads: the first of them is number `first`."""
        shift = jnp.asarray(first, jnp.uint32) * HEAD_STEP
        return Dropout(self.rate, jnp.asarray(self.seed, jnp.uint32) + shift)


def keep_scale(dropout: Dropout, edge_ids: jax.Array, num_heads: int) -> jax.Array:
    """0 where (edge, head) is dropped and 1 / (1 - rate) where not, for ids of any shape.

    A hash and not a random stream: the same in every back end and under every split of the edges,
    and the backward pass draws it again instead of storing it.
    """
    return kept(dropout.rate, edge_ids[..., None], head_keys(dropout.seed, num_heads))


def head_keys(seed: jax.Array | int, num_heads: int) -> jax.Array:
    """The half of the hash that depends on the head and the seed, uint32 for each head."""
    heads = jnp.arange(num_heads, dtype=jnp.uint32) * HEAD_STEP
    return _scramble(heads + jnp.asarray(seed, jnp.uint32))


def kept(rate: float, edge_ids: jax.Array, keys: jax.Array) -> jax.Array:
    """The other half, for ids and keys of heads that broadcast; also for use within a kernel."""
    bits = _scramble(edge_ids.astype(jnp.uint32) ^ keys)
    keep = bits >= np.uint32(min(rate * 2.0**32, 2**32 - 1))
    return jnp.where(keep, np.float32(1.0 / (1.0 - rate)), np.float32(0.0))


def _scramble(x: jax.Array) -> jax.Array:
    """A bijection of 32-bit words in which every bit of the input reaches every bit out."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)

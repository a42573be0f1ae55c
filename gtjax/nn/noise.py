"""Dropout by hashing, so that what is dropped depends on the node and not on where it is stored.

A random stream would give a node other values when the graph is split or renumbered; a hash of
(node, channel, seed) gives every strategy the same gradients. It is also several times cheaper on
a CPU than the counter-based generators of `jax.random`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from gtjax.nn.neighbours import Dropped
from gtjax.nn.sparse import SparseRows

X = TypeVar("X", bound=jax.Array | SparseRows)


class Noise:
    """Where a model in training takes its randomness from; `Noise(None)` is evaluation."""

    def __init__(self, key: jax.Array | None, node_ids_n: jax.Array | None = None):
        self._key = key
        self._node_ids_n = node_ids_n
        self._draws = 0

    @property
    def quiet(self) -> bool:
        """Whether nothing is random: evaluation."""
        return self._key is None

    def seed(self) -> jax.Array:
        """A new 32-bit seed each time it is asked for."""
        if self._key is None:
            return jnp.uint32(0)
        self._draws += 1
        return jax.random.bits(jax.random.fold_in(self._key, self._draws), (), jnp.uint32)

    def drop(self, x_nf: X, rate: float) -> X:
        """Zero a share of the values and scale the rest up so that the mean stays."""
        return self.dropper(rate)(x_nf)

    def dropper(self, rate: float) -> Callable[[Any], Any]:
        """A new draw of what to drop: the same however often it is called."""
        if self._key is None or rate == 0:
            return lambda x_nf: x_nf
        seed, known_n = self.seed(), self._node_ids_n  # as they are now: it may be called later

        def kept(x: jax.Array, ids: jax.Array, channels: jax.Array) -> jax.Array:
            keep = _bits(ids, channels, seed) >= jnp.uint32(rate * 2.0**32)
            return jnp.where(keep, x / (1 - rate), 0).astype(x.dtype)

        def drop(x_nf: Any) -> Any:
            ids_n1 = node_ids(x_nf, known_n)[:, None]
            if not isinstance(x_nf, SparseRows):
                return kept(x_nf, ids_n1, jnp.arange(x_nf.shape[1], dtype=jnp.uint32))
            values_e = kept(x_nf.values_e, x_nf.node_ids_e, x_nf.channels_e)
            beside_nf = x_nf.beside_nf
            if beside_nf is not None:
                channels_f = jnp.arange(*x_nf.channels_beside, dtype=jnp.uint32)
                beside_nf = kept(beside_nf, ids_n1, channels_f)
            return replace(x_nf, values_e=values_e, beside_nf=beside_nf)

        return drop

    def drop_nodes(self, x_nf: jax.Array, rate: float) -> jax.Array:
        """Zero a share of the rows, the others stay as they are: DropNode (Feng et al. 2020)."""
        if self._key is None or rate == 0:
            return x_nf
        bits_n1 = uniform_bits(node_ids(x_nf, self._node_ids_n), 1, self.seed())
        return jnp.where(bits_n1 >= jnp.uint32(rate * 2.0**32), x_nf, 0)

    def drop_branch(self, change_nf: jax.Array, rate: float) -> jax.Array:
        """All of a layer's change or nothing, of all nodes alike, scaled so that the mean stays.

        Stochastic depth (Huang et al. 2016). What is left out is computed all the same.
        """
        if self._key is None or rate == 0:
            return change_nf
        factor = jnp.where(self.seed() >= jnp.uint32(rate * 2.0**32), 1 / (1 - rate), 0.0)
        return change_nf * factor.astype(change_nf.dtype)

    def keep(self, own: Callable[[jax.Array], jax.Array]) -> None:
        """From here on there are fewer rows: those that `own` takes."""
        if self._node_ids_n is not None:
            self._node_ids_n = own(self._node_ids_n)

    def edges(self, rate: float) -> Dropped | None:
        """A new draw of what to drop along edges, for `Neighbours`; None in evaluation."""
        return None if self.quiet or rate == 0 else Dropped(rate, self.seed())

    def copy(self) -> Noise:
        """One that will draw the same from here on."""
        return copy.copy(self)

    def follow(self, other: Noise) -> None:
        """Go on where a copy has got to."""
        self._draws = other._draws


def node_ids(x_nf: jax.Array | SparseRows, node_ids_n: jax.Array | None) -> jax.Array:
    """The nodes' numbers in the whole graph; rows that are no nodes are numbered in order."""
    if node_ids_n is None or len(node_ids_n) != len(x_nf):
        return jnp.arange(len(x_nf), dtype=jnp.uint32)
    return node_ids_n


def uniform_bits(ids_n: jax.Array, channels: int, seed: jax.Array) -> jax.Array:
    """32 random bits for every (node, channel), a function of the node's id and the seed alone."""
    return _bits(ids_n[:, None], jnp.arange(channels, dtype=jnp.uint32), seed)


def _bits(ids: jax.Array, channels: jax.Array, seed: jax.Array) -> jax.Array:
    """The same for ids and numbers of channels that broadcast."""
    of_rows = _scramble(ids.astype(jnp.uint32) ^ seed)
    return _scramble(of_rows + channels.astype(jnp.uint32) * jnp.uint32(0x9E3779B9))


def _scramble(x: jax.Array) -> jax.Array:
    """Mix the bits of a word: multiply and shift, twice over."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)

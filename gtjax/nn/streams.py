"""Random streams for making models, which count in Python.

`nnx.Rngs` keeps its counter as an array. Under a trace, where models are made, each draw then looks
through everything traced so far, so that making a model takes time quadratic in its layers. These
give the same keys.
"""

from __future__ import annotations

import jax
from flax import nnx


class CountedStream(nnx.RngStream):
    """A stream whose draws are numbered by a Python integer."""

    def __init__(self, key: jax.Array | int, *, tag: str):
        super().__init__(key, tag=tag)
        self.drawn = 0

    def __call__(self) -> jax.Array:
        """The next key."""
        key = jax.random.fold_in(self.key[...], self.drawn)
        self.drawn += 1
        return key


class Streams(nnx.Rngs):
    """The stream that parameters are drawn from, as modules take it."""

    params: CountedStream

    def __init__(self, seed: jax.Array | int):
        super().__init__()
        self.params = CountedStream(seed, tag="params")

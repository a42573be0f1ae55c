"""The form that rows have while they travel between devices: a table, one class an entry.

Rows of other devices are encoded before they leave and decoded where they arrive; their gradients
come back as they are. A wire that is not exact passes gradients straight through: the derivative is
taken as that of the rows that arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp


class Wire(Protocol):
    """One form. Hashable: programs are compiled for it."""

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def exact(self) -> bool:
        """Whether what arrives is what was sent."""
        ...

    def encode(self, rows: jax.Array) -> jax.Array:
        """Rows of a table `[rows, ...]` as they travel, with as many rows."""
        ...

    def decode(self, like: jax.Array, sent: jax.Array) -> jax.Array:
        """What arrived, as rows of a table like the one that was encoded."""
        ...

    def row_bytes(self, values: int, itemsize: int) -> int:
        """Bytes of a row of so many values, each of `itemsize` bytes in memory."""
        ...


@dataclass(frozen=True)
class Plain:
    """As they are."""

    name: str = "plain"
    exact: bool = True

    def encode(self, rows: jax.Array) -> jax.Array:
        """The rows."""
        return rows

    def decode(self, like: jax.Array, sent: jax.Array) -> jax.Array:
        """The rows."""
        return sent

    def row_bytes(self, values: int, itemsize: int) -> int:
        """As in memory."""
        return values * itemsize


@dataclass(frozen=True)
class Int8:
    """Eight bits a value and a scale a row: a quarter of float32, half of bfloat16.

    A value is off by at most half a step of its row's scale, 1/254 of the row's largest value; the
    scale, a float32, travels at the end of the row. Whole numbers travel as they are. Choose it
    where links are what a step waits for. After quantised messages (Wan et al. 2023, "Adaptive
    Message Quantization and Parallelization for Distributed Full-graph GNN Training").
    """

    name: str = "int8"
    exact: bool = False

    def encode(self, rows: jax.Array) -> jax.Array:
        """Values over the row's largest, in 127 steps each way, and the scale as four bytes."""
        if not jnp.issubdtype(rows.dtype, jnp.floating):
            return rows
        flat_nf = rows.reshape(rows.shape[0], -1).astype(jnp.float32)
        scale_n1 = jnp.abs(flat_nf).max(axis=1, keepdims=True) / 127
        steps_nf = jnp.round(flat_nf / jnp.where(scale_n1 > 0, scale_n1, 1.0))
        scale_n4 = jax.lax.bitcast_convert_type(scale_n1[:, 0], jnp.int8)
        return jnp.concatenate([steps_nf.astype(jnp.int8), scale_n4], axis=1)

    def decode(self, like: jax.Array, sent: jax.Array) -> jax.Array:
        """Steps times the scale; a row with a NaN or an infinity has arrived as NaN."""
        if not jnp.issubdtype(like.dtype, jnp.floating):
            return sent
        scale_n = jax.lax.bitcast_convert_type(sent[:, -4:], jnp.float32)
        scale_n = jnp.where(jnp.isfinite(scale_n), scale_n, jnp.nan)
        rows_nf = sent[:, :-4].astype(jnp.float32) * scale_n[:, None]
        return rows_nf.reshape(-1, *like.shape[1:]).astype(like.dtype)

    def row_bytes(self, values: int, itemsize: int) -> int:
        """A byte a value, and the scale."""
        return values + 4


PLAIN = Plain()
WIRES: dict[str, Wire] = {wire.name: wire for wire in (PLAIN, Int8())}


def encoded_bytes(wire: Wire, array: Any) -> int:
    """Bytes of one row of an array on the wire."""
    values = 1
    for size in array.shape[1:]:
        values *= size
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return values * array.dtype.itemsize
    return wire.row_bytes(values, array.dtype.itemsize)

"""Rows that are mostly zero, such as bags of words: what dense layers take in place of an array.

A model that says `reads_sparse` may find them in `Inputs.x_nf`. It passes them through dropout,
`joined` and the layers of `gtjax.nn.dense`, at the cost of the values alone; nothing else can be
done with them. Where the values are, and what multiplies them, is the business of `product`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class SparseRows:
    """Values that are not zero, each with its place; and dense columns after them, if any.

    product: (values, matrix [channels, outputs]) -> rows times matrix, in float32. Differentiable
             in the matrix alone.
    """

    rows: int
    channels: int  # of the sparse part
    values_e: jax.Array  # of any shape, as long as the next two have the same
    channels_e: jax.Array
    node_ids_e: jax.Array  # numbers in the whole graph, for dropout
    product: Callable[[jax.Array, jax.Array], jax.Array]
    beside_nf: jax.Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, as of an array."""
        return self.rows, self.channels_beside[1]

    @property
    def channels_beside(self) -> tuple[int, int]:
        """The first of the dense columns, and one past the last."""
        beside = 0 if self.beside_nf is None else self.beside_nf.shape[1]
        return self.channels, self.channels + beside

    def __len__(self) -> int:
        return self.rows

    def beside(self, columns: list[jax.Array]) -> SparseRows:
        """The same with dense columns after the last."""
        return replace(self, beside_nf=jnp.concatenate(columns, axis=1)) if columns else self

    def times(self, matrix_fo: jax.Array) -> jax.Array:
        """The rows times a matrix: values in its type, sums in float32."""
        dtype = matrix_fo.dtype
        out_no = self.product(self.values_e.astype(dtype), matrix_fo[: self.channels])
        if self.beside_nf is None:
            return out_no
        rest = (self.beside_nf.astype(dtype), matrix_fo[self.channels :])
        return out_no + jnp.matmul(*rest, preferred_element_type=jnp.float32)


def is_sparse(x_nf: Any) -> bool:
    """Whether these rows can be multiplied with a matrix, and no more."""
    return isinstance(x_nf, SparseRows)

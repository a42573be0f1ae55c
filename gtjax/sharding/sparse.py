"""Rows that are mostly zero, spread over the devices: the part of each, and products with a matrix.

A device has the values of its own rows in both orders, by row and by column, which is 20 bytes a
value; the matrix is on every device, and its gradient is summed over all. Rows are cut over both
axes of the mesh, as all rows of nodes are, so every strategy finds them where it wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from gtjax.sharding.mesh import Spread
from gtjax.sharding.specs import BY_ROW, EVERYWHERE
from gtjax.strategies import PADDING
from pallas_kernels import WEIGHTED_SUM, Edges, build_stacked_edges, sparse_product
from pallas_kernels.edges import EdgeForm, EdgeList

ROWS = 1 << 12  # looked at together


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpreadRows:
    """Rows of all devices: every array has a leading axis of devices.

    Receivers of the edges are a device's rows, senders the columns, and ids those that the rows
    have in the whole graph.
    """

    edges: Edges
    values_pe: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all devices, and columns."""
        devices, ends = self.edges.offsets_r.shape
        return devices * (ends - 1), self.edges.sender_offsets_s.shape[1] - 1

    def times(
        self, values_pe: jax.Array, matrix_fo: jax.Array, spread: Spread, kernel: str = "auto"
    ) -> jax.Array:
        """The rows with these values times a matrix: float32, a row a node."""
        chosen = WEIGHTED_SUM.kernel(kernel, spread.platform)

        def of_device(edges: Edges, values_pe: jax.Array, matrix_fo: jax.Array) -> jax.Array:
            own = jax.tree.map(lambda x: x.reshape(x.shape[1:]), edges)
            return sparse_product(values_pe.reshape(-1), matrix_fo, own, kernel=chosen)

        if spread.shape.devices == 1:  # XLA would not leave out the sum over one device
            return of_device(self.edges, values_pe, matrix_fo)
        everywhere = jax.shard_map(
            of_device,
            mesh=spread.mesh,
            in_specs=(BY_ROW, BY_ROW, EVERYWHERE),
            out_specs=BY_ROW,
            check_vma=False,  # kernels do not say along which axes their results vary
        )
        return everywhere(self.edges, values_pe, matrix_fo)


def spread_rows(
    number_pr: np.ndarray,
    source: np.ndarray,
    change: Callable[[np.ndarray], np.ndarray],
    devices: int,
    forms: Collection[EdgeForm] = (),
) -> SpreadRows:
    """What is not zero in rows of `source`, by number and as `change` leaves them (host side).

    Rows of padding are empty. Only a few rows are dense at a time.
    """
    numbers_pr = number_pr.reshape(devices, -1)
    found = [_values(numbers_r, source, change) for numbers_r in numbers_pr]
    edges = build_stacked_edges(
        [part for part, _ in found],
        num_senders=source.shape[1],
        num_receivers=numbers_pr.shape[1],
        forms=forms,
    )
    values_pe = np.zeros(edges.senders_e.shape, np.float32)
    for part, (_, value_e) in enumerate(found):
        values_pe[part, : len(value_e)] = value_e
    return SpreadRows(edges, values_pe)


def _values(
    numbers_r: np.ndarray, source: np.ndarray, change: Callable[[np.ndarray], np.ndarray]
) -> tuple[EdgeList, np.ndarray]:
    """Columns, rows and ids of the values of one device, and the values."""
    parts = []
    for start in range(0, len(numbers_r), ROWS):
        numbers = numbers_r[start : start + ROWS]
        there = np.flatnonzero(numbers != PADDING)
        rows = np.asarray(change(source[numbers[there]]), np.float32)
        row_e, column_e = np.nonzero(rows)
        at_e = there[row_e]
        parts.append((column_e, start + at_e, numbers[at_e], rows[row_e, column_e]))
    column_e, row_e, id_e, value_e = (np.concatenate(each) for each in zip(*parts, strict=True))
    return EdgeList(column_e, row_e, id_e), value_e

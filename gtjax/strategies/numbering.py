"""Where each node stands once the graph is in parts: part by part, all of the same padded length.

Every device runs the same program, so every part has as many rows as the largest one, and what is
missing is padding at its end. Within a part nodes keep the order they are given in, so an order
that keeps neighbours close together stays one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gtjax.graph.csr import stable_order
from gtjax.partition import Partition

PADDING = -1
# The registers of a TPU are 128 wide. Where the rows of a part do not fill them, its compiler makes
# an all-reduce of every reduce-scatter: twice the bytes, and all parts' rows on each device.
REGISTER_ROWS = 128
ROWS_TO_FILL = 8 * REGISTER_ROWS  # of fewer, padding would be more than an eighth


@dataclass(frozen=True, eq=False)
class Numbering:
    """Rows of all parts: row `r` of part `p` is position `p * rows + r`."""

    node_pr: np.ndarray  # int64: the node that stands there, or PADDING
    num_nodes: int

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.node_pr.shape[0]

    @property
    def rows(self) -> int:
        """Rows of every part, padding included."""
        return self.node_pr.shape[1]

    @cached_property
    def position_n(self) -> np.ndarray:
        """Where each node stands."""
        flat = self.node_pr.reshape(-1)
        # Edges have two positions each: 32 bits where they do.
        position_n = np.empty(self.num_nodes, np.int32 if len(flat) < 2**31 else np.int64)
        there = np.flatnonzero(flat != PADDING)
        position_n[flat[there]] = there
        return position_n


def number_nodes(
    partition: Partition,
    order_n: np.ndarray | None = None,
    multiple: int = 1,
    *,
    at_least: int = 1,
) -> Numbering:
    """Number the nodes part by part, in the order given.

    Every part has at least so many rows, padded to a multiple.
    """
    order_n = np.arange(len(partition.owner_n)) if order_n is None else order_n
    owner_n = partition.owner_n[order_n]
    in_parts = order_n[stable_order(owner_n, partition.num_parts)]
    sizes_p = np.bincount(owner_n, minlength=partition.num_parts)
    rows = rows_of_parts(max(at_least, int(sizes_p.max())), partition.num_parts, multiple)
    node_pr = np.full((partition.num_parts, rows), PADDING, np.int64)
    node_pr[np.arange(rows) < sizes_p[:, None]] = in_parts
    return Numbering(node_pr, len(owner_n))


def rows_of_parts(largest: int, parts: int, multiple: int = 1) -> int:
    """Rows of every part, padding included, where the largest has so many nodes."""
    if parts > 1 and largest >= ROWS_TO_FILL:
        multiple = math.lcm(multiple, REGISTER_ROWS)
    return padded(max(1, largest), multiple)


def padded(count: int, multiple: int) -> int:
    """The count rounded up to a multiple."""
    return -(-int(count) // multiple) * multiple

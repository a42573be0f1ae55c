"""The edges of a graph in blocks: some rows (receivers, or senders) with all of their edges.

Rows are cut so that no block has more than so many rows and edges; a hub with more edges than that
is a block by itself, in a shape of its own. All other blocks have one shape, so one program serves
them all. The far ends of a block's edges are read either from all rows in place (`whole`), or from
a table of the distinct ones, which is gathered (`gathered`): the first reads rows where they are
and suits what the machine's memory (page cache included) holds; the second is what a device with
its own memory gets, and reads a file in ascending order. Renumberings are made once and kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gtjax.chunks.rows import Scratch
from gtjax.core.errors import UserError
from gtjax.graph.csr import CSR
from pallas_kernels.edges import Edges
from pallas_kernels.edges.stacking import EdgeList, TooLargeError, build_stacked_edges

Side = Literal["receiver", "sender"]
ROOM = 1.2  # by how much the first block's tiles may be exceeded by those of others


@dataclass(frozen=True)
class Block:
    """Rows `start:end`, whose edges stand at `first:last` in the order of the rows."""

    number: int
    start: int
    end: int
    first: int
    last: int
    capacity: int  # of edges: what the arrays hold, padding included


class Blocks:
    """The blocks of one side: rows are receivers with their in-edges, or senders with out-edges."""

    def __init__(self, csr: CSR, side: Side, rows: int, edges: int, scratch: Scratch):
        self.csr, self.side, self.rows = csr, side, rows
        self.num_rows = len(csr.offsets) - 1
        if self.num_rows >= 2**31:
            raise UserError(f"chunks number nodes in 32 bits; found {self.num_rows:,} nodes")
        self._scratch = scratch
        self.list = list(_cut(csr.offsets, rows, edges))
        self._none = np.zeros(1, np.int32)
        self._like: dict[tuple[int, tuple[str, ...]], Edges] = {}

    @cached_property
    def distinct(self) -> Renumbered:
        """The far ends of every block, each once, and the edges in their numbers."""
        return Renumbered(self)

    def far_ends(self, block: Block) -> np.ndarray:
        """Of the block's edges."""
        return np.asarray(self.csr.neighbours_e[block.first : block.last])

    def edge_ids(self, block: Block) -> np.ndarray:
        """Numbers of the block's edges in the whole graph, as dropout draws by them."""
        return edge_ids(self.csr, block.first, block.last)

    def offsets(self, block: Block) -> np.ndarray:
        """Of the block's rows, padded to the shape of all blocks."""
        offsets = self.csr.offsets[block.start : block.end + 1]
        result = np.full(self.rows + 1, block.last - block.first, np.int32)
        result[: len(offsets)] = offsets - block.first
        return result

    def light(self, block: Block, far: np.ndarray, table: int, *, draws: bool) -> Edges:
        """The edges as kernels need them that walk rows of this side alone.

        In the other order there are no edges, so that a pass over that side finds nothing to do.
        """
        columns = np.zeros(block.capacity, np.int32)
        columns[: len(far)] = far
        ids = columns.view(np.uint32)  # which nobody reads
        if draws:
            ids = np.zeros(block.capacity, np.uint32)
            ids[: len(far)] = self.edge_ids(block)
        own, none = self.offsets(block), self._no_edges(table)
        order = np.arange(block.capacity, dtype=np.int32)
        if self.side == "receiver":
            return Edges(own, columns, ids, none, columns, order)
        return Edges(none, columns, ids, own, columns, order)

    def _no_edges(self, table: int) -> np.ndarray:
        """Offsets of so many rows, all without edges."""
        if len(self._none) != table + 1:
            self._none = np.zeros(table + 1, np.int32)
        return self._none

    def full(
        self, block: Block, far: np.ndarray, table: int, forms: tuple[str, ...]
    ) -> tuple[Edges, np.ndarray]:
        """The edges in both orders with further forms, and which edge of the block stands where.

        They stand by receiver, whichever side the rows are.
        """
        near = np.repeat(
            np.arange(block.end - block.start),
            np.diff(self.csr.offsets[block.start : block.end + 1]),
        )
        ids = self.edge_ids(block).astype(np.uint32)
        order = np.arange(len(far))
        senders, receivers = far, near
        sizes = {"num_senders": table, "num_receivers": self.rows}
        if self.side == "sender":
            order = np.argsort(far, kind="stable")
            senders, receivers, ids = near[order], far[order], ids[order]
            sizes = {"num_senders": self.rows, "num_receivers": table}
        part = EdgeList(senders, receivers, ids)
        options: dict[str, Any] = {"forms": forms, **sizes}
        key = (block.capacity, forms)
        try:
            made = (
                build_stacked_edges([part], like=self._like.get(key), **options)
                if (key in self._like)
                else None
            )
        except TooLargeError:
            made = None
        if made is None:
            room = {"room": ROOM} if forms else {}
            made = build_stacked_edges([part], num_edges=block.capacity, **room, **options)
            self._like[key] = made
        return made, order


class Renumbered:
    """The distinct far ends of each block, and every edge in numbers of its block's table."""

    def __init__(self, blocks: Blocks):
        csr, scratch = blocks.csr, blocks._scratch
        self._local_e = scratch.array((len(csr.neighbours_e),), np.int32)
        place_n = np.zeros(_num_far(blocks), np.int32)
        found: list[np.ndarray] = []
        for block in blocks.list:
            far = blocks.far_ends(block)
            seen = np.zeros(len(place_n), bool)
            seen[far] = True
            distinct = np.flatnonzero(seen).astype(np.int32)
            place_n[distinct] = np.arange(len(distinct), dtype=np.int32)
            self._local_e[block.first : block.last] = place_n[far]
            kept = scratch.array((len(distinct),), np.int32)
            kept[:] = distinct
            found.append(kept)
        self._distinct = found
        most = max((len(each) for each in found), default=0)
        self.table = -(-max(most, 1) // 64) * 64  # rows of a table, padding included

    def of(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """The distinct far ends of a block in ascending order, and its edges' places there."""
        return self._distinct[block.number], self._local_e[block.first : block.last]


def _num_far(blocks: Blocks) -> int:
    return blocks.num_rows  # one set of nodes at both ends


def _cut(offsets: np.ndarray, rows: int, edges: int) -> Iterator[Block]:
    start, count, number = 0, len(offsets) - 1, 0
    while start < count:
        first = int(offsets[start])
        end = int(np.searchsorted(offsets, first + edges, side="right")) - 1
        end = max(start + 1, min(end, start + rows))
        last = int(offsets[end])
        capacity = edges
        while capacity < last - first:
            capacity *= 2
        yield Block(number, start, end, first, last, capacity)
        start, number = end, number + 1


def edge_ids(csr: CSR, first: int, last: int) -> np.ndarray:
    """Numbers of edges in the whole graph, at some positions."""
    if not has_ids(csr):
        return np.arange(first, last)
    return np.asarray(csr.edge_ids_e[first:last])


def has_ids(csr: CSR) -> bool:
    """Whether edges have numbers other than their positions, which a stored graph leaves out."""
    return isinstance(csr.edge_ids_e, np.ndarray)

"""Edges as strips of eight, one row's each: the layout that suits the vector registers of a TPU.

A TPU register is 8 sublanes by 128 lanes. With the channels of all heads in the lanes, a strip of
eight edges of the same row fills the sublanes, so that a row's query is one broadcast load, a
softmax over a strip is a reduction within a register, and no row's numbers ever meet another's
(a one-hot matrix product over mixed rows would carry one row's NaN into all of them).

Strips stand in the order of the rows, some to a *tile*, and the tiles of `block_rows` consecutive
rows form a block, which starts a tile of its own. Every row has a strip, if only an empty one, so
that whoever walks all strips writes all rows. A hub is a run of strips over as many tiles as it
takes. Padding costs arithmetic but no memory traffic: a tile lists only the edges that are there.
On power-law graphs of mean degree 14 there are about 1.35 slots to an edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from pallas_kernels.edges import limits
from pallas_kernels.edges.tiling import position_in_group

STRIP = 8  # edges to a strip: the sublanes of a register
STRIPS_PER_TILE = 32
BLOCK_ROWS = 256
CORES = 2  # a chip with two cores gives each one half of the blocks


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Strips:
    """All the strips of a CSR, and what each tile needs to know.

    A line holds, for one tile: the columns of its edges, the slots they go to, then for each strip
    its row within the block, its number of edges, and whether it is its row's first; at the end the
    number of edges over eight. The list of edges is padded to a multiple of eight with edges that
    go to slots past the last.
    """

    tile_starts_b: Any  # int32 [blocks + 1]: block b has tiles tile_starts[b]:tile_starts[b + 1]
    lines_l: Any  # int32: one line after the other
    positions_tw: Any  # int32: position in receiver order of the edge in each slot, 0 if none
    ids_tw: Any  # int32: the bits of the id of the edge in each slot
    block_rows: int = field(metadata={"static": True})

    @property
    def num_blocks(self) -> int:
        """Number of blocks: 1, or a multiple of `CORES`."""
        return self.tile_starts_b.shape[0] - 1

    @property
    def slots(self) -> int:
        """Slots in a tile."""
        return self.ids_tw.shape[1]


@dataclass(frozen=True)
class Line:
    """Where things stand in the line of a tile."""

    slots: int

    @property
    def strips(self) -> int:
        """Strips in a tile."""
        return self.slots // STRIP

    @property
    def targets(self) -> int:
        """First of the slots that the edges go to."""
        return self.slots

    @property
    def rows(self) -> int:
        """First of the strips' rows."""
        return 2 * self.slots

    @property
    def counts(self) -> int:
        """First of the strips' numbers of edges."""
        return self.rows + self.strips

    @property
    def fresh(self) -> int:
        """First of the flags of strips that begin a row."""
        return self.counts + self.strips

    @property
    def groups(self) -> int:
        """The number of edges over eight."""
        return self.fresh + self.strips

    @property
    def length(self) -> int:
        """Words in a line: whole registers."""
        return -(-(self.groups + 1) // 128) * 128


def strips_of_rows(
    rows_e: np.ndarray,
    columns_e: np.ndarray,
    positions_e: np.ndarray,
    ids_e: np.ndarray,
    num_rows: int,
    *,
    block_rows: int = BLOCK_ROWS,
    strips_per_tile: int = STRIPS_PER_TILE,
) -> tuple[Strips, np.ndarray]:
    """Lay out edges that come sorted by row (host side); also the slot of each edge."""
    block_rows = min(block_rows, -(-max(num_rows, 1) // STRIP) * STRIP)
    blocks = -(-max(num_rows, 1) // block_rows)
    blocks = 1 if blocks == 1 else -(-blocks // CORES) * CORES
    line, slots = Line(strips_per_tile * STRIP), strips_per_tile * STRIP

    degrees_r = np.bincount(rows_e, minlength=num_rows)
    strips_r = np.maximum(1, -(-degrees_r // STRIP))
    block_r = np.arange(num_rows) // block_rows
    strips_b = np.bincount(block_r, weights=strips_r, minlength=blocks).astype(np.int64)
    starts_b = np.zeros(blocks + 1, np.int64)
    np.cumsum(-(-strips_b // strips_per_tile), out=starts_b[1:])
    tiles = max(1, int(starts_b[-1]))
    limits.check_strips(tiles, line.length, blocks)
    in_block_r = np.cumsum(strips_r) - strips_r - (np.cumsum(strips_b) - strips_b)[block_r]
    first_strip_r = starts_b[block_r] * strips_per_tile + in_block_r

    lines_tl = np.zeros((tiles, line.length), np.int32)
    strip_row = np.repeat(np.arange(num_rows), strips_r)
    nth = position_in_group(strips_r)
    strip = first_strip_r[strip_row] + nth
    # Strips of padding, at the end of a block, carry on with its last row and add nothing to it.
    last_row_b = np.minimum((np.arange(blocks) + 1) * block_rows, num_rows) - 1
    by_strip = np.zeros((3, tiles * strips_per_tile), np.int32)
    tiles_b = np.diff(starts_b)
    padding_row = np.repeat(np.maximum(last_row_b, 0) % block_rows, tiles_b * strips_per_tile)
    by_strip[0, : len(padding_row)] = padding_row
    by_strip[0, strip] = strip_row % block_rows
    by_strip[1, strip] = np.clip(degrees_r[strip_row] - nth * STRIP, 0, STRIP)
    by_strip[2, strip] = nth == 0
    for start, values in zip((line.rows, line.counts, line.fresh), by_strip, strict=True):
        lines_tl[:, start : start + strips_per_tile] = values.reshape(tiles, -1)

    slot_e = first_strip_r[rows_e] * STRIP + position_in_group(degrees_r)
    edges_t = np.bincount(slot_e // slots, minlength=tiles)
    nth_e = position_in_group(edges_t)
    lines_tl[:, line.groups] = -(-edges_t // STRIP)
    lines_tl[:, line.targets : line.targets + slots] = slots + np.arange(slots) % STRIP
    lines_tl[slot_e // slots, nth_e] = columns_e
    lines_tl[slot_e // slots, line.targets + nth_e] = slot_e % slots

    def by_slot(values_e: np.ndarray) -> np.ndarray:
        whole = np.zeros(tiles * slots, np.int32)
        whole[slot_e] = values_e.astype(np.uint32).view(np.int32)
        return whole.reshape(tiles, slots)

    strips = Strips(
        tile_starts_b=starts_b.astype(np.int32),
        lines_l=lines_tl.reshape(-1),
        positions_tw=by_slot(positions_e),
        ids_tw=by_slot(ids_e),
        block_rows=block_rows,
    )
    return strips, slot_e.astype(np.int32)

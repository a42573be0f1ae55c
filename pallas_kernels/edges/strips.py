"""Edges as strips of eight, side by side: the layout that suits the vector registers of a TPU.

A TPU register is 8 sublanes by 128 lanes. With the channels of all heads in the lanes, a strip is
eight edges in the sublanes, of eight different rows: what is summed over a row's edges is then
summed over strips, register by register, nothing is reduced within one, and no row's numbers ever
meet another's (a one-hot matrix product over mixed rows would carry one row's NaN into all).

The rows of a block of `block_rows` consecutive ones are sorted by their number of edges and taken
eight at a time, a *group*, so that rows of about the same length stand side by side (Kreutzer et
al. 2014: SELL-C-sigma). A hub, a row of more than `HUB` edges, is a group of its own: its edges
go over all eight sublanes, whose results are merged at the end. The edges of a group are cut into
*chunks* of `STEPS` strips, chunks of one block stand one after the other in *tiles* of a fixed
number of slots, and a block starts a tile of its own. Rows without edges are in no group: whoever
walks the groups gives them their value beforehand.

Every slot has a column to fetch, if only one that nobody uses: so a tile is always the same amount
of work, which a compiler can lay out once. An R-MAT graph of mean degree 14, two fifths of whose
rows are empty and half of which have at most one edge, takes 1.25 slots to an edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from pallas_kernels.edges import limits
from pallas_kernels.edges.tiling import position_in_group

STRIP = 8  # edges to a strip: the sublanes of a register
STEPS = 4  # strips to a chunk
CHUNK = STEPS * STRIP  # slots of a chunk
CHUNKS_PER_TILE = 4
BLOCK_ROWS = 256
HUB = 64  # edges of a row from which on it has a group of its own
CORES = 2  # a chip with two cores gives each one half of the blocks

# The word of a chunk: for each sublane the number of its edges, and two flags.
COUNT_BITS = 3
FRESH_BIT, HUB_BIT = 24, 25


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Strips:
    """All the strips of a CSR, and what each tile needs to know.

    A line holds, for one tile: the column of each slot; then for each chunk the rows of its eight
    sublanes within the block; then a word for each chunk, which says how many edges each sublane
    has, whether it is its group's first, and whether the group is a hub.
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
    def chunks(self) -> int:
        """Chunks in a tile."""
        return self.slots // CHUNK

    @property
    def rows(self) -> int:
        """First of the chunks' rows."""
        return self.slots

    @property
    def words(self) -> int:
        """First of the chunks' words."""
        return self.rows + self.chunks * STRIP

    @property
    def length(self) -> int:
        """Words in a line: whole registers."""
        return -(-(self.words + self.chunks) // 128) * 128


def strips_of_rows(
    rows_e: np.ndarray,
    columns_e: np.ndarray,
    positions_e: np.ndarray,
    ids_e: np.ndarray,
    num_rows: int,
    *,
    block_rows: int = BLOCK_ROWS,
    chunks_per_tile: int = CHUNKS_PER_TILE,
) -> tuple[Strips, np.ndarray]:
    """Lay out edges that come sorted by row (host side); also the slot of each edge."""
    block_rows = min(block_rows, -(-max(num_rows, 1) // STRIP) * STRIP)
    blocks = -(-max(num_rows, 1) // block_rows)
    blocks = 1 if blocks == 1 else -(-blocks // CORES) * CORES
    line, slots = Line(chunks_per_tile * CHUNK), chunks_per_tile * CHUNK

    degrees_r = np.bincount(rows_e, minlength=num_rows)
    groups = _Groups(degrees_r, block_rows)
    chunks_b = np.bincount(groups.block_g, weights=groups.chunks_g, minlength=blocks)
    chunks_b = chunks_b.astype(np.int64)
    starts_b = np.zeros(blocks + 1, np.int64)
    np.cumsum(-(-chunks_b // chunks_per_tile), out=starts_b[1:])
    tiles = max(1, int(starts_b[-1]))
    limits.check_strips(tiles, line.length, blocks)
    before_b = starts_b[:-1] * chunks_per_tile - (np.cumsum(chunks_b) - chunks_b)
    first_chunk_g = np.cumsum(groups.chunks_g) - groups.chunks_g + before_b[groups.block_g]

    # Chunks of padding, at the end of a block, carry on with its last group and add nothing to it.
    chunk_count = tiles * chunks_per_tile
    group_c = np.zeros(chunk_count, np.int64)
    nth = position_in_group(groups.chunks_g)
    real_c = np.repeat(first_chunk_g, groups.chunks_g) + nth
    group_c[real_c] = np.repeat(np.arange(len(groups.chunks_g)), groups.chunks_g)
    np.maximum.accumulate(group_c, out=group_c)
    nth_c = np.full(chunk_count, -1, np.int64)
    nth_c[real_c] = nth

    lines_tl = np.zeros((tiles, line.length), np.int32)
    if len(groups.chunks_g):
        rows_cs = groups.row_gs[group_c] % block_rows
        lines_tl[:, line.rows : line.words] = rows_cs.reshape(tiles, -1)
        words_c = groups.words(group_c, nth_c).reshape(tiles, -1)
        lines_tl[:, line.words : line.words + chunks_per_tile] = words_c

    nth_e = position_in_group(degrees_r)
    group_e, sublane_e = groups.group_r[rows_e], groups.sublane_r[rows_e]
    hub_e = groups.hub_g[group_e]
    step_e = np.where(hub_e, nth_e // STRIP, nth_e)
    sublane_e = np.where(hub_e, nth_e % STRIP, sublane_e)
    slot_e = first_chunk_g[group_e] * CHUNK + step_e * STRIP + sublane_e

    # What nobody uses is fetched from all over the table, since one place would become busy.
    columns_s = np.arange(tiles * slots) % (int(columns_e.max()) + 1 if len(columns_e) else 1)
    columns_s[slot_e] = columns_e
    lines_tl[:, :slots] = columns_s.reshape(tiles, slots)

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


class _Groups:
    """Rows with edges, in eights of about the same length; hubs alone, before the others."""

    def __init__(self, degrees_r: np.ndarray, block_rows: int):
        block_r = np.arange(len(degrees_r)) // block_rows
        order = np.lexsort((-degrees_r, block_r))
        order = order[degrees_r[order] > 0]
        degree, block = degrees_r[order], block_r[order]
        hub = degree > HUB
        count_b = np.bincount(block[~hub], minlength=int(block[-1]) + 1 if len(block) else 0)
        # The first eight of a block may not be full. Room is left in front: there the sublanes
        # have the row of the one after them, which is written later.
        place = position_in_group(count_b) + np.repeat(-count_b % STRIP, count_b)
        sublane = np.zeros(len(order), np.int64)
        sublane[~hub] = place % STRIP
        starts = hub | np.concatenate([[True], (block[1:] != block[:-1]) | hub[:-1]])[: len(hub)]
        starts |= sublane == 0
        group = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)

        self.hub_g, self.block_g = hub[first], block[first]
        self._degree_g = degree[first]  # the largest of the group
        self.chunks_g = -(-self._degree_g // np.where(self.hub_g, CHUNK, STEPS))
        self.group_r, self.sublane_r = np.zeros((2, len(degrees_r)), np.int64)
        self.group_r[order], self.sublane_r[order] = group, sublane
        self.row_gs = np.repeat(order[first, None], STRIP, axis=1)
        self.row_gs[group, sublane] = order
        self._degree_gs = np.zeros_like(self.row_gs)
        self._degree_gs[group, sublane] = degree

    def words(self, group_c: np.ndarray, nth_c: np.ndarray) -> np.ndarray:
        """The word of each chunk, the nth of a group; -1: padding."""
        hub_c = self.hub_g[group_c]
        done_c, there_c = nth_c[:, None], (nth_c >= 0)[:, None]
        own_cs = np.clip(self._degree_gs[group_c] - done_c * STEPS, 0, STEPS)
        left_c1 = np.clip(self._degree_g[group_c][:, None] - done_c * CHUNK, 0, CHUNK)
        of_hub_cs = (left_c1 + STRIP - 1 - np.arange(STRIP)) // STRIP
        count_cs = np.where(hub_c[:, None], of_hub_cs, own_cs) * there_c
        packed_c = (count_cs << (COUNT_BITS * np.arange(STRIP))).sum(axis=1)
        return packed_c | (nth_c == 0) << FRESH_BIT | hub_c.astype(np.int64) << HUB_BIT

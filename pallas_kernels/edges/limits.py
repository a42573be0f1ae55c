"""Where the 32-bit arithmetic of kernels ends: how much of a graph one device can hold.

Kernels number edges, slots and words in 32 bits, because that is what devices compute addresses in.
A number past the end would wrap and read somebody else's row without an error, so everything that
is multiplied is checked here, on the host or while tracing, where it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Kernels look past the last edge of a row by less than a piece or the widest tile.
MOST_EDGES = 2**31 - 1024
MOST_NODES = 2**31 - 1
# Slots of tiles are numbered in int32, and one past the last stands for padding.
MOST_SLOTS = 2**31 - 1
# A tile of strips finds its line by `number * words in a line`, in int32.
MOST_LINE_WORDS = 2**31 - 1
# A TPU finds a row by `(row >> 3) * words in eight rows`, unsigned (seen in programs for v5p).
MOST_TPU_WORDS = 2**32
# It finds a line of 128 words in a table by `(where the table is + line) << 4`, unsigned, in units
# of 32 bytes (seen in programs for v5e): 128 GiB, table and all before it, more than a chip has.
MOST_TPU_LINES = 2**28
# The first tile of every block is held in scalar memory, 1 MiB, beside lines of tiles.
MOST_TPU_BLOCKS = 2**18 - 2**13


class LimitError(ValueError):
    """More of a graph than one device can hold, whatever its memory."""


def check_nodes(nodes: int) -> None:
    """Refuse more nodes than have a number."""
    if nodes > MOST_NODES:
        raise LimitError(
            f"one device holds at most {MOST_NODES:,} nodes; found {nodes:,}. Use more devices."
        )


def check_edges(edges: int) -> None:
    """Refuse more edges than have a number."""
    if edges > MOST_EDGES:
        raise LimitError(
            f"one device holds at most {MOST_EDGES:,} edges; found {edges:,}. Use more devices."
        )


def check_tile_slots(slots: int) -> None:
    """Refuse tiles (`tiling.py`) whose slots cannot be numbered."""
    if slots > MOST_SLOTS:
        raise LimitError(
            f"kernel xla takes at most {MOST_SLOTS:,} slots of tiles on one device; these edges "
            f"need {slots:,}. Use more devices."
        )


def check_strips(tiles: int, words: int, blocks: int) -> None:
    """Refuse strips (`strips.py`) whose lines, of so many words, cannot be found by a TPU."""
    if tiles * words > MOST_LINE_WORDS:
        raise LimitError(
            f"kernel tpu takes at most {MOST_LINE_WORDS // words:,} tiles of strips on one device; "
            f"these edges need {tiles:,}. Use more devices, or kernel xla."
        )
    if blocks > MOST_TPU_BLOCKS:
        raise LimitError(
            f"kernel tpu takes at most {MOST_TPU_BLOCKS:,} blocks of rows on one device; these "
            f"rows need {blocks:,}. Use more devices, or kernel xla."
        )


def check_tpu_lines(rows: int, lines: int) -> None:
    """Refuse a table of rows of so many lines in which a TPU cannot find every row."""
    if rows * lines > MOST_TPU_LINES:
        raise LimitError(
            f"kernel tpu finds at most {MOST_TPU_LINES // lines:,} rows of {lines} lines of 128 "
            f"words; found {rows:,}. Use more devices, rows in bfloat16, or kernel xla."
        )


def check_tpu_words(name: str, shape: Sequence[int]) -> None:
    """Refuse an array of 32-bit words in which a TPU cannot find every row."""
    if (words := math.prod(shape)) > MOST_TPU_WORDS:
        raise LimitError(
            f"kernel tpu finds rows in arrays of at most {MOST_TPU_WORDS * 4 // 2**30} GiB; "
            f"{name} {tuple(shape)} takes {words * 4 / 2**30:.1f} GiB. Use more devices, rows in "
            "bfloat16, or kernel xla."
        )

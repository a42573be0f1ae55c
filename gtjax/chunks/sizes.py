"""How large chunks are, for the memory that may be used.

The memory is shared out: a part for the chunks of rows that are computed at once, one for the
tables of far ends, and what is left for arrays that need no file. Larger chunks than a few ten
thousand rows gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gtjax.chunks.segments import Plan

GIB = 2**30
# Shares of the memory. The rest is for what jax and Python take themselves.
OF_CHUNKS, OF_TABLES, OF_ARRAYS = 0.2, 0.25, 0.3
IN_FLIGHT = 3  # chunks: one read, one computed, one written; see `pipeline`
WIDEST_ARRAYS = 6  # of a segment's widest value that are there at once; assumed, see the README
MOST_ROWS, MOST_EDGES = 1 << 15, 1 << 21
LEAST_ROWS, LEAST_EDGES = 64, 1 << 12


@dataclass(frozen=True)
class Sizes:
    """Rows that are worked on at once."""

    node_rows: int = MOST_ROWS
    """Nodes of a chunk, between ops."""
    edge_rows: int = MOST_ROWS
    """Edges of a chunk, between ops."""
    block_rows: int = MOST_ROWS
    """Receivers, or senders, of a block of an op."""
    block_edges: int = MOST_EDGES
    """Edges of a block."""
    whole_bytes: float = 0.0
    """Rows of far ends up to this size are read in place, and not gathered into tables."""
    array_bytes: float = float("inf")
    """Arrays of all nodes or edges that are kept in memory and not in files."""


def sizes_for(
    memory_gib: float | None, row_bytes: float, table_bytes: float, nodes: int, edges: int
) -> Sizes:
    """Sizes for so much memory; None: what is free now.

    Args:
        memory_gib: That may be used, in GiB.
        row_bytes: What a row of a chunk takes while it is computed, gradients included.
        table_bytes: What a row of the widest table of far ends takes.
        nodes: Of the graph.
        edges: Of the graph.
    """
    available = available_bytes()
    memory = 0.8 * available if memory_gib is None else memory_gib * GIB
    rows = _power(OF_CHUNKS * memory / IN_FLIGHT / max(row_bytes, 1), LEAST_ROWS, MOST_ROWS)
    tables = OF_TABLES * memory / (IN_FLIGHT - 1) / max(table_bytes, 1)
    block_edges = _power(min(tables, 2 * edges), LEAST_EDGES, MOST_EDGES)
    rows = min(rows, _power(nodes, LEAST_ROWS, MOST_ROWS))
    # As many rows as have that many edges, usually: more would be padding.
    usual = 2 * block_edges * nodes / max(edges, 1)
    return Sizes(
        rows,
        rows,
        min(2 * rows, _power(usual, LEAST_ROWS, MOST_ROWS)),
        block_edges,
        whole_bytes=available / 2,
        array_bytes=OF_ARRAYS * memory,
    )


def row_and_table_bytes(plan: Plan) -> tuple[float, float]:
    """What a row takes while a segment computes it, and a row of an op's table, at the most.

    Inputs and outputs of a segment with their gradients, and some arrays of its widest value:
    compilers fuse what lies between them.
    """
    flow = plan.flow

    def sizes(values: Iterable[int]) -> list[float]:
        rows = (flow.values[v] for v in values if flow.values[v].kind != "shared")
        return [float(v.width * v.dtype.itemsize) for v in rows]

    of_rows = []
    for segment in (each for some in plan.segments for each in some):
        made = [v for e in segment.equations for v in flow.equations[e].outputs]
        ends = sizes([*segment.inputs, *segment.outputs])
        of_rows.append(2 * sum(ends) + WIDEST_ARRAYS * max([*sizes(made), *ends], default=0.0))
    of_tables = [sum(sizes(call.leaves)) + 2 * sum(sizes([call.out])) for call in flow.ops]
    return max(of_rows, default=1.0), max(of_tables, default=1.0)


def available_bytes() -> float:
    """Memory of this machine that is free or can be freed, page cache included."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 4.0 * GIB  # not Linux: assume little
    known = {line.split(":")[0]: float(line.split()[1]) * 1024 for line in lines}
    return known.get("MemAvailable", 4.0 * GIB)


def _power(number: float, least: int, most: int) -> int:
    """The largest power of two up to a number, within bounds."""
    size = least
    while 2 * size <= min(number, most):
        size *= 2
    return size

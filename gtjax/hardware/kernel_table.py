"""Every op with every kernel that runs here, on one graph: does it agree with XLA, how fast is it.

For a person with a device that nobody has tried: all ops, float32 and bfloat16, result and
gradients, each kernel beside XLA and beside what the memory alone would take. The graph has hubs,
nodes without edges and multi-edges. Takes minutes, most of them compiling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gtjax.hardware.timing import seconds_of
from pallas_kernels import OPS
from pallas_kernels.edges import EdgeForm, build_edges
from pallas_kernels.op import Kernel, Op
from pallas_kernels.trial import RowShapes, awkward_edges, both_passes, compare, rows_of

HEADS, WIDTH = 8, 16
NODES = {"cpu": 10_007, "gpu": 200_003, "tpu": 200_003}  # and seven times as many edges
TYPES = ("float32", "bfloat16")
COPIED_BYTES = {"cpu": 2**26, "gpu": 2**29, "tpu": 2**29}


@dataclass(frozen=True)
class Row:
    """One kernel of an op on rows of one type, forward and backward. Seconds are medians."""

    op: str
    kernel: str
    dtype: str
    agrees: bool
    worst: str  # what differs most from XLA's, and by how much of the largest number
    seconds: float
    xla_seconds: float
    memory_seconds: float  # that the rows of all edges take at the measured bandwidth

    def __str__(self) -> str:
        verdict = "agrees" if self.agrees else "WRONG"
        return (
            f"{self.op:<14}{self.kernel:<7}{self.dtype:<10}{verdict:<8}"
            f"{self.seconds * 1e3:9.2f}{self.xla_seconds * 1e3:11.2f}"
            f"{self.memory_seconds * 1e3:11.2f}   {self.worst}"
        )


HEADER = (
    f"{'op':<14}{'kernel':<7}{'type':<10}{'':<8}{'ms':>9}{'ms in XLA':>11}{'ms memory':>11}"
    "   largest difference"
)


def shapes_of(op: Op, dtype: str) -> RowShapes:
    """What an op is given, with rows of edges where it takes some."""
    wide, narrow, flat = (
        jax.ShapeDtypeStruct(shape, dtype) for shape in ((HEADS, WIDTH), (HEADS,), (HEADS * WIDTH,))
    )
    table = {
        "dot_product": RowShapes(wide, (wide, wide), narrow),
        "gat": RowShapes(narrow, (narrow, wide), narrow),
        "gatv2": RowShapes(wide, wide, wide, wide),
        "weighted_sum": RowShapes(None, wide, narrow),
        "weighted_mean": RowShapes(None, wide, narrow),
        "max": RowShapes(None, flat),
        "min": RowShapes(None, flat),
    }
    return table[op.name]


def bandwidth(platform: str) -> float:
    """Bytes a second of reading and writing memory, as measured now."""
    size = COPIED_BYTES.get(platform, 2**26)
    array = jnp.zeros(size // 4, jnp.float32)
    copy = jax.jit(lambda x: x + 1)
    jax.block_until_ready(copy(array))  # compiles it
    return 2 * size / seconds_of(copy, array)


def table(platform: str) -> Iterator[Row]:
    """All rows, as they are found; a kernel that raises is a row that says so."""
    nodes = NODES.get(platform, NODES["cpu"])
    senders_e, receivers_e = awkward_edges(nodes)
    speed = bandwidth(platform)
    for op in OPS.values():
        able = [k for k in op.kernels if platform in k.platforms and not k.why_not()]
        xla = op.kernel("xla", platform)
        forms: list[EdgeForm] = [form for kernel in (*able, xla) for form in kernel.needs]
        edges = build_edges(
            senders_e, receivers_e, num_senders=nodes, num_receivers=nodes, forms=forms
        )
        edges = jax.tree.map(jnp.asarray, edges)
        for dtype in TYPES:
            shapes = shapes_of(op, dtype)
            rows = rows_of(shapes, nodes, edges.num_edges)
            wanted = both_passes(op, xla, rows, edges)
            xla_seconds = seconds_of(both_passes, op, xla, rows, edges)
            known = (xla_seconds, _gathered_bytes(shapes, edges.num_edges) / speed)
            for kernel in able or (xla,):
                yield _row(op, kernel, dtype, rows, edges, wanted, *known)


def _row(
    op: Op,
    kernel: Kernel,
    dtype: str,
    rows: Any,
    edges: Any,
    wanted: Any,
    xla_seconds: float,
    memory_seconds: float,
) -> Row:
    known = (op.name, kernel.name, dtype)
    try:
        outcome = compare(both_passes(op, kernel, rows, edges), wanted, dtype)
        what, error = outcome.worst
        seconds = seconds_of(both_passes, op, kernel, rows, edges)
        worst = f"{error:.1e}, {what}"
        return Row(*known, outcome.agrees, worst, seconds, xla_seconds, memory_seconds)
    except Exception as error:
        said = f"raised {type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
        return Row(*known, False, said, math.nan, xla_seconds, memory_seconds)


def _gathered_bytes(shapes: RowShapes, edges: int) -> float:
    """Of rows, once an edge: senders' forward and twice backward, receivers' and the result's."""

    def row_bytes(tree: Any) -> int:
        leaves = jax.tree.leaves(tree)
        return sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in leaves)

    result = row_bytes(jax.tree.leaves(shapes.sender)[-1:])
    of_edge = 2 * row_bytes(shapes.sender) + row_bytes(shapes.receiver) + result
    return edges * (of_edge + 4 * row_bytes(shapes.edge) + 3 * 4)

"""Forward and backward of the ops that have kernels, as programs to lower or compile for a device.

Shapes of rows are those of `op_cases.py` with other numbers of heads and channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from pallas_kernels.driver import segment
from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op
from tests.kernels.op_cases import CASES, HD, HEADS

FUSED = ("dot_product", "gat", "gatv2", "sum", "mean, weights")
FUSED_WITH_EDGES = ("dot_product, bias", "gat, bias", "gatv2, edges", "sum, weights")


def kernel_of(op: Op, name: str) -> Kernel:
    """The op's kernel of that name, wherever this runs."""
    return next(kernel for kernel in op.kernels if kernel.name == name)


def both_passes(case: str, kernel: str, rate: float = 0.0) -> Callable[..., Any]:
    """(rows, edges, seed) -> result and gradients."""
    op = CASES[case].op

    def step(rows: dict[str, Any], edges: Edges, seed: Any = 7) -> Any:
        def compute(rows: dict[str, Any]) -> jax.Array:
            dropout, chosen = Dropout(rate, seed), kernel_of(op, kernel)
            return segment(op, edges, **rows, dropout=dropout, kernel=chosen)

        out, pullback = jax.vjp(compute, rows)
        return out, pullback(out)

    return step


def row_shapes(
    case: str, nodes: int, edges: int, heads: int, width: int, dtype: Any, **options: Any
) -> dict[str, Any]:
    """Arguments of `both_passes`; options are those of `jax.ShapeDtypeStruct`."""
    of = CASES[case]
    sizes = {(HEADS,): (heads,), HD: (heads, width)}

    def shaped(shapes: Any, *leading: int) -> Any:
        return jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct((*leading, *sizes[shape]), dtype, **options),
            shapes,
            is_leaf=lambda x: x in sizes,
        )

    return {
        "receiver": shaped(of.receiver, nodes),
        "sender": shaped(of.sender, nodes),
        "edge": shaped(of.edge, edges),
        "shared": shaped(of.shared),
    }

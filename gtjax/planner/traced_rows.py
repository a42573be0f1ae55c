"""Sparse features whose products stand in a traced program.

The planner's half of `gtjax/sharding/sparse.py`: the same arrays go in, nothing is computed. Every
row has as many values as the rows have on average, so that what there is of them is so much a node.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive

from gtjax.planner.flat_program import Equation, Program
from gtjax.planner.step_work import Amount
from gtjax.sharding.sparse import SpreadRows
from pallas_kernels import Edges
from pallas_kernels.driver import no_gradient

# Stand for products in a trace. They are never run: they have shapes and nothing else.
product, gradient = Primitive("sparse_product"), Primitive("sparse_gradient")
for each in (product, gradient):
    each.def_abstract_eval(lambda *_, shape: ShapedArray(shape, jnp.float32))


def traced_rows(nodes: int, channels: int, values: int) -> SpreadRows:
    """Shapes of the features of so many nodes that have so many values each."""

    def numbers(dtype: Any, *shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    edges = Edges(
        offsets_r=numbers(jnp.int32, nodes, 2),
        senders_e=numbers(jnp.int32, nodes, values),
        edge_ids_e=numbers(jnp.uint32, nodes, values),
        sender_offsets_s=numbers(jnp.int32, 1, channels + 1),
        receivers_by_sender_e=numbers(jnp.int32, nodes, values),
        sender_order_e=numbers(jnp.int32, nodes, values),
    )
    return SpreadRows(edges, numbers(jnp.float32, nodes, values))


def traced_times(rows: SpreadRows, values_pe: jax.Array, matrix_fo: jax.Array) -> jax.Array:
    """In the place of `SpreadRows.times`."""
    by_row = (values_pe, *jax.tree.leaves(rows.edges))
    shape = (rows.shape[0], matrix_fo.shape[1])

    def forward(matrix_fo: jax.Array, *by_row: jax.Array) -> tuple[jax.Array, Any]:
        return product.bind(*by_row, matrix_fo, shape=shape), by_row

    def backward(by_row: Any, dout_no: jax.Array) -> tuple[Any, ...]:
        of_matrix = gradient.bind(*by_row, dout_no, shape=matrix_fo.shape)
        values_pe, *rest = by_row
        return of_matrix.astype(matrix_fo.dtype), jnp.zeros_like(values_pe), *map(no_gradient, rest)

    run = jax.custom_vjp(lambda matrix_fo, *by_row: forward(matrix_fo, *by_row)[0])
    run.defvjp(forward, backward)
    return run(matrix_fo, *by_row)


def is_sparse_product(equation: Equation) -> bool:
    """Whether it is one of these."""
    return equation.name in (product.name, gradient.name)


def gathered_bytes(program: Program, equation: Equation) -> Amount:
    """Of rows of the matrix, or of the gradient, that a product gathers: one a value."""
    values, table = equation.inputs[0], equation.inputs[-1]
    width = math.prod(program.shapes[table][1:]) * program.sizes[table]
    return program.amount(program.shapes[values], width)

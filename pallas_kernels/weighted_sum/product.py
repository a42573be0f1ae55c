"""Products of sparse rows with a dense matrix: a weighted sum of the matrix's rows for each row.

Receivers are the sparse rows, senders those of the matrix, an edge is a value that is not zero and
its weight the value. Choose it where a product would multiply with zeros for the most part, such as
the first layer on bags of words. It costs a row of the matrix for each value, forward, and a row of
the gradient for each value, backward. Values have no gradient: whoever asks for one is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from pallas_kernels.driver import no_gradient
from pallas_kernels.edges import Edges
from pallas_kernels.op import Kernel
from pallas_kernels.weighted_sum.cpu import CPU, sums
from pallas_kernels.weighted_sum.op import WEIGHTED_SUM


def sparse_product(
    value_e: Float[Array, " e"],
    matrix_sf: Float[Array, "s f"],
    edges: Edges,
    *,
    kernel: str | Kernel = "auto",
) -> Float[Array, "r f"]:
    """Rows of values times a matrix, with float32 sums; differentiable in the matrix alone.

    Value e stands in row r, where `offsets_r[r] <= e < offsets_r[r + 1]`, and column `senders_e[e]`
    of the sparse rows. A place that is given twice counts as the sum of both.
    """
    chosen = WEIGHTED_SUM.kernel(kernel) if isinstance(kernel, str) else kernel
    return _product(chosen, value_e, matrix_sf, edges)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(kernel: Kernel, value_e: jax.Array, matrix_sf: jax.Array, edges: Edges) -> jax.Array:
    rows = (None, matrix_sf[:, None], None, edges, value_e[:, None], None)
    partial_rhd = kernel.forward(WEIGHTED_SUM, *rows)
    out_rhd, _ = WEIGHTED_SUM.reduce.finish(partial_rhd)
    return out_rhd[:, 0]


def _forward(kernel: Kernel, value_e: Any, matrix_sf: Any, edges: Edges) -> tuple[jax.Array, Any]:
    if value_e.perturbed:
        raise ValueError(
            "values of sparse rows have no gradient here: ask for that of dense features instead"
        )
    known = jax.tree.map(
        lambda x: x.value,
        (value_e, matrix_sf, edges),
        is_leaf=lambda x: isinstance(x, jax.custom_derivatives.CustomVJPPrimal),
    )
    return _product(kernel, *known), known


def _backward(kernel: Kernel, known: Any, dout_rf: Any) -> tuple[Any, ...]:
    value_e, matrix_sf, edges = known
    if isinstance(dout_rf, SymbolicZero):
        dout_rf = jnp.zeros(dout_rf.shape, jnp.float32)
    gradient_sf = _of_matrix(kernel, value_e, matrix_sf, edges, dout_rf)
    return (
        jnp.zeros_like(value_e),
        gradient_sf.astype(matrix_sf.dtype),
        jax.tree.map(no_gradient, edges),
    )


def _of_matrix(
    kernel: Kernel, value_e: jax.Array, matrix_sf: jax.Array, edges: Edges, dout_rf: jax.Array
) -> jax.Array:
    """The same sum over the edges by sender."""
    dout_rhd, weight_eh = dout_rf[:, None], value_e[:, None]
    if kernel is CPU:  # its backward pass would compute the gradient of the values beside this
        by_sender = (edges.sender_offsets_s, edges.receivers_by_sender_e)
        weights = weight_eh.astype(jnp.float32)
        return sums(dout_rhd, by_sender, edges, weights, order_e=edges.sender_order_e)[1][:, 0]
    rows = (None, matrix_sf[:, None], None, edges, weight_eh)
    out_rhd = jnp.zeros(dout_rhd.shape, jnp.float32)  # which the gradient of a sum does not read
    _, d_sender, _, _ = kernel.backward(WEIGHTED_SUM, *rows, out_rhd, None, dout_rhd, None)
    return d_sender[:, 0]


_product.defvjp(_forward, _backward, symbolic_zeros=True)

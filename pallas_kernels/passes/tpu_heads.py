"""From the channels of heads to numbers of heads on a TPU, and back.

The channels of all heads are in the lanes; a number of heads is one lane a head. Sums over channels
are products with zeros and ones on the matrix unit, which multiplies bfloat16: a float32 is the sum
of three of them, each with eight of its 24 bits, and products with zeros and ones are exact, so
three passes give all its bits (six are for products of any two numbers). The way back is a
permutation of lanes.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pallas_kernels.passes.tpu_tables import LANES, Heads


def lanes_of_heads(heads: Heads) -> jax.Array:
    """Ones where a lane is of a head, [lanes, LANES]."""
    lane, head = np.arange(heads.lanes)[:, None], np.arange(LANES)
    inside = (lane // heads.width == head) & (head < heads.count)
    return jnp.asarray(inside, jnp.bfloat16)


def unit(rows: int) -> jax.Array:
    """Ones on the diagonal, [rows, LANES]."""
    shape = (rows, LANES)
    row, lane = (lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
    return (row == lane).astype(jnp.float32).astype(jnp.bfloat16)


def exact_dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    """A product to all the bits of float32, of which one side is zeros and ones, in bfloat16."""
    dims = (((axis_a,), (axis_b,)), ((), ()))
    # The smallest parts first, as they lose least so.
    products = [
        lax.dot_general(left, right, dims, preferred_element_type=jnp.float32)
        for left in _parts(a)
        for right in _parts(b)
    ]
    return sum(products[1:], products[0])


def _parts(x: jax.Array) -> list[jax.Array]:
    """Numbers of bfloat16 whose sum is x, the smallest first."""
    if x.dtype == jnp.bfloat16:
        return [x]
    parts = []
    for _ in range(2):
        # Cut by bits: a compiler may take a conversion there and back for nothing.
        bits = lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-65536)
        high = lax.bitcast_convert_type(bits, jnp.float32)
        parts.append(high)
        x = x - high
    return [part.astype(jnp.bfloat16) for part in (x, *reversed(parts))]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def sum_of_heads(heads: Heads, x: jax.Array, of_head: jax.Array) -> jax.Array:
    """Sum each head's channels: [rows, lanes] to [rows, LANES]."""
    return exact_dot(x, of_head, 1, 0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def to_channels(heads: Heads, x: jax.Array, of_head: jax.Array) -> jax.Array:
    """Give each channel the number of its head: [rows, LANES] to [rows, lanes]."""
    del of_head
    lane = lax.broadcasted_iota(jnp.int32, (x.shape[0], heads.lanes), 1)
    there = heads.count * heads.width
    found = jnp.take_along_axis(x, jnp.minimum(lane // heads.width, heads.count - 1), axis=1)
    return found if there == heads.lanes else jnp.where(lane < there, found, 0.0)


def _sum_forward(heads: Heads, x: jax.Array, of_head: jax.Array) -> tuple[jax.Array, jax.Array]:
    return sum_of_heads(heads, x, of_head), of_head


def _sum_backward(heads: Heads, of_head: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    return to_channels(heads, d, of_head), jnp.zeros_like(of_head)


def _spread_forward(heads: Heads, x: jax.Array, of_head: jax.Array) -> tuple[jax.Array, jax.Array]:
    return to_channels(heads, x, of_head), of_head


def _spread_backward(heads: Heads, of_head: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    return sum_of_heads(heads, d, of_head), jnp.zeros_like(of_head)


sum_of_heads.defvjp(_sum_forward, _sum_backward)
to_channels.defvjp(_spread_forward, _spread_backward)

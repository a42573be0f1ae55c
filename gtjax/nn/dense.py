"""Dense layers as all models make them: of arrays, and of rows that are mostly zero."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import setting_of
from gtjax.nn.sparse import SparseRows


class Dense(nnx.Linear):
    """A linear layer that also takes `SparseRows`, at the cost of their values."""

    def __call__(self, inputs: jax.Array | SparseRows, out_sharding: Any = None) -> jax.Array:
        """[nodes, inputs] to [nodes, outputs]."""
        if not isinstance(inputs, SparseRows):
            return super().__call__(inputs, out_sharding)
        out_nf = inputs.times(self.kernel[...].astype(self.dtype))
        return out_nf if self.bias is None else out_nf + self.bias[...].astype(self.dtype)


def sum_of_both(one: Dense, other: Dense | None, inputs: jax.Array | SparseRows) -> jax.Array:
    """What two layers of like sizes make of the same rows, added up: by one product for both.

    `x A + x B = x (A + B)`, and so in the backward pass. The second layer may be missing.
    """
    if other is None:
        return one(inputs)
    kernel = (one.kernel[...] + other.kernel[...]).astype(one.dtype)
    if isinstance(inputs, SparseRows):
        out_nf = inputs.times(kernel)
    else:
        out_nf = jnp.matmul(inputs.astype(one.dtype), kernel, preferred_element_type=jnp.float32)
    for layer in (one, other):
        if layer.bias is not None:
            out_nf += layer.bias[...].astype(one.dtype)
    return out_nf


def linear(inputs: int, outputs: int, config: Any, rngs: nnx.Rngs) -> Dense:
    """A dense layer in the model's type whose sums, and so outputs, are float32."""
    return dense(inputs, outputs, dtype=setting_of(config, "dense_dtype"), rngs=rngs)


def dense(
    inputs: int, outputs: int, *, bias: bool = True, dtype: str = "float32", rngs: nnx.Rngs
) -> Dense:
    """A dense layer of that type with float32 parameters, sums and outputs."""
    return Dense(
        inputs,
        outputs,
        use_bias=bias,
        dtype=jnp.dtype(dtype),
        param_dtype=jnp.float32,
        preferred_element_type=jnp.float32,
        kernel_init=nnx.initializers.xavier_uniform(),
        rngs=rngs,
    )

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

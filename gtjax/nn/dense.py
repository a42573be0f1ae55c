"""Dense layers as all models make them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from gtjax.nn.config import setting_of


def linear(inputs: int, outputs: int, config: Any, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer in the model's type whose sums, and so outputs, are float32."""
    return dense(inputs, outputs, dtype=setting_of(config, "dense_dtype"), rngs=rngs)


def dense(
    inputs: int, outputs: int, *, bias: bool = True, dtype: str = "float32", rngs: nnx.Rngs
) -> nnx.Linear:
    """A dense layer of that type with float32 parameters, sums and outputs."""
    return nnx.Linear(
        inputs,
        outputs,
        use_bias=bias,
        dtype=jnp.dtype(dtype),
        param_dtype=jnp.float32,
        preferred_element_type=jnp.float32,
        kernel_init=nnx.initializers.xavier_uniform(),
        rngs=rngs,
    )

"""An op in jax, compiled ahead of time and ready to be timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from contenders.case import CaseFolder
from contenders.kinds import GRADIENT, OP_KINDS, gradient_name
from contenders.work import Work

PACKAGES = ("jax", "jaxlib", "numpy", "gtjax")

# call(layout, *inputs): the layout is an argument, since a constant would be folded by XLA
Call = Callable[..., jax.Array]


def op(
    folder: CaseFolder,
    layout: Any,
    call: Call,
    *,
    order_n: np.ndarray | None = None,
    dtype: Any = jnp.float32,
    facts: dict[str, Any] | None = None,
) -> Work:
    """The op alone: forward, and forward with the gradients.

    `order_n` puts the nodes in another order before the clock starts, and the results back after;
    for ops all of whose inputs are rows of nodes.
    """
    kind = OP_KINDS[folder.case.kind]
    order = slice(None) if order_n is None else order_n

    def array(name: str) -> jax.Array:
        return jnp.asarray(folder.array(name)[order], dtype)

    layout = jax.device_put(layout)
    inputs, constants = tuple(map(array, kind.inputs)), tuple(map(array, kind.constants))
    dout = array(GRADIENT)

    def of_inputs(layout: Any, inputs: Any, constants: Any) -> jax.Array:
        return call(layout, *inputs, *constants)

    def with_gradients(layout: Any, inputs: Any, constants: Any, dout: jax.Array) -> Any:
        out, pull = jax.vjp(lambda *inputs: call(layout, *inputs, *constants), *inputs)
        return out, *pull(dout)

    one_way, two_ways = (layout, inputs, constants), (layout, inputs, constants, dout)
    forward = jax.jit(of_inputs).lower(*one_way).compile()
    both = jax.jit(with_gradients).lower(*two_ways).compile()

    def in_order(array: jax.Array) -> np.ndarray:
        result = np.empty(array.shape, np.float32)
        result[order] = np.asarray(array, np.float32)
        return result

    def results() -> dict[str, np.ndarray]:
        forward_out = in_order(forward(*one_way))
        out, *gradients = map(in_order, both(*two_ways))
        named = zip(map(gradient_name, kind.inputs), gradients, strict=True)
        return {"forward": forward_out, "out": out, **dict(named)}

    return Work(
        operations={
            "forward": lambda: jax.block_until_ready(forward(*one_way)),
            "both": lambda: jax.block_until_ready(both(*two_ways)),
        },
        results=results,
        needs_bytes=needs(both),
        packages=PACKAGES,
        facts={"xla_temporary_bytes": temporary(both), **(facts or {})},
    )


def temporary(compiled: Any) -> int | None:
    """What XLA allocates beside arguments and outputs."""
    memory = compiled.memory_analysis()
    return None if memory is None else memory.temp_size_in_bytes


def needs(compiled: Any) -> int:
    """What a run allocates."""
    memory = compiled.memory_analysis()
    return 0 if memory is None else memory.temp_size_in_bytes + memory.output_size_in_bytes

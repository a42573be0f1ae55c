"""Recomputes parts of the model in the backward pass instead of keeping what they computed.

What a layer keeps for its gradient is most of the memory of a step, and a step that touches less
memory is also faster: on a CPU the operating system clears every page of it anew. Recomputing costs
arithmetic (Chen et al. 2016), little for normalisations and GELUs and a forward pass more for whole
blocks: `ModelConfig.remat` chooses. A step of the benchmark (3 layers, hidden 128, 170,000 nodes)
takes 4.1 GB of temporary memory with "none" and 2.9 GB with "elementwise"; one of 5 layers on four
devices (hidden 64, 20,000 nodes) 92 MB with "elementwise" and 45 MB with "block".

`jax.checkpoint` is not used, for two reasons that were measured on the CPU. XLA drops the barriers
it puts up and starts to recompute as soon as it has the inputs, during the forward pass, so nothing
is saved; here the recomputation needs a number of the gradient and has to wait. And it rounds what
it keeps by name (`reduce_precision`), which is a pass over memory for each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

# Zero, known to be so only once the gradient is there: a column, or 0.0 where there is no waiting.
Late = jax.Array | float

_kept: ContextVar[bool] = ContextVar("kept", default=False)


@contextlib.contextmanager
def nothing_recomputed() -> Iterator[None]:
    """Trace a model as if nothing was to be recomputed: for whoever recomputes in another way."""
    before = _kept.set(True)
    try:
        yield
    finally:
        _kept.reset(before)


def recomputed(
    function: Callable[..., jax.Array],
    modules: Any,
    *arrays: jax.Array | None,
    strict: bool = False,
) -> jax.Array:
    """`function(modules, *arrays, late)`, of which the backward pass keeps the inputs alone.

    The function adds `late` to something of each node that it can compute nothing large without. A
    matrix product at its very end is not recomputed, since no gradient needs the result. What it
    closes over is not differentiated.

    strict: nothing of it may be there earlier or later than it has to be, which costs a message of
            one number between devices each way. For what is large.
    """
    if _kept.get():
        return function(modules, *arrays, 0.0)
    graphdef, state = nnx.split(modules)

    def compute(late: Late, state: Any, *arrays: jax.Array | None) -> jax.Array:
        return function(nnx.merge(graphdef, state), *arrays, late)

    def forward(state: Any, *arrays: jax.Array | None) -> tuple[jax.Array, Any]:
        return compute(0.0, state, *arrays), (state, arrays)

    def backward(saved: Any, gradient_nf: jax.Array) -> tuple[Any, ...]:
        state, arrays = saved
        late = zero_after(gradient_nf)
        if not strict:
            _, pull = jax.vjp(partial(compute, late), state, *arrays)
            return pull(gradient_nf)
        # The parameters wait too: XLA makes a bias as large as what it is added to, and would do
        # so, and keep it, from the start of the step.
        state = jax.tree.map(lambda x: x + late[0, 0].astype(x.dtype), state)
        _, pull = jax.vjp(partial(compute, late), state, *arrays)
        d_state, d_first, *rest = pull(gradient_nf)
        # And who goes on waits for their gradients: XLA would compute them last of all, and keep
        # what they are computed from until then, of all layers at once.
        return d_state, d_first + _zero_once_known(d_state), *rest

    run = jax.custom_vjp(partial(compute, 0.0))
    run.defvjp(forward, backward)
    return run(state, *arrays)


def _zero_once_known(d_state: Any) -> jax.Array:
    """Zero, that needs all gradients of the parameters as far as XLA can tell.

    Of one element of each it would compute just that.
    """
    total = sum(x.max().astype(jnp.float32) for x in jax.tree.leaves(d_state))
    return jnp.where(jnp.isfinite(total), total, 0) * 0


def zero_after(gradient_nf: jax.Array) -> jax.Array:
    """A column of zeros that depends on the gradient, as far as XLA can tell."""
    first_n1 = gradient_nf[:, :1].astype(jnp.float32)
    return jnp.where(jnp.isfinite(first_n1), first_n1, 0) * 0  # no compiler may simplify that

"""Neighbours whose ops stand in a traced program, and what the gradient of each reads.

The planner's half of `pallas_kernels/driver.py`: the same rows go in and out, nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive

from gtjax.planner.flat_program import flattened
from gtjax.sharding.recording import Call, RecordingNeighbours
from pallas_kernels import Op
from pallas_kernels.driver import no_gradient, result_type

# Primes: no width of a model is a multiple of them, so that a size tells what it counts.
NODES, EDGES = 1_000_003, 10_000_019

# Stand for an op in a trace. They are never run: they have shapes and nothing else.
op_forward, op_backward = Primitive("op_forward"), Primitive("op_backward")
for each in (op_forward, op_backward):
    each.multiple_results = True
    each.def_abstract_eval(lambda *_, shapes, **__: [ShapedArray(*shape) for shape in shapes])


@dataclass
class TracedNeighbours(RecordingNeighbours):
    """Neighbours whose ops stand in the traced program, forward and backward.

    As the driver of ops does (`pallas_kernels/driver.py`), the backward pass of each takes its
    rows, its result, and some numbers of each row, and gives gradients of all rows.
    """

    calls: list[Call] = field(default_factory=list)

    def _result(self, op: Op, receiver: Any, sender: Any, edge: Any, shared: Any) -> jax.Array:
        call, number = self.calls[-1], len(self.calls) - 1
        leaves, treedef = jax.tree.flatten((receiver, sender, edge, shared))
        leaves = [jnp.asarray(leaf) for leaf in leaves]
        nodes = self.degree_n.shape[0]
        value = super()._result(op, receiver, sender, edge, shared)  # for its shape alone
        made = ((value.shape, jnp.float32), ((nodes, call.work.saved_values), jnp.float32))
        made = made if call.work.saved_values else made[:1]
        has_gradient = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]
        kinds = treedef.unflatten(range(len(leaves)))
        senders, edges_ = jax.tree.leaves(kinds[1]), jax.tree.leaves(kinds[2])
        owners = tuple(
            "sender" if at in senders else "edge" if at in edges_ else ""
            for at, fraction in enumerate(has_gradient)
            if fraction
        )

        reads = gradient_reads(op, receiver, sender, edge, shared)

        def forward(*leaves: jax.Array) -> tuple[jax.Array, Any]:
            options = {"number": number, "shapes": made, "senders": tuple(senders)}
            out, *saved = op_forward.bind(*leaves, **options)
            return out.astype(result_type(sender)), (leaves, out, saved)

        def backward(known: Any, dout: jax.Array) -> tuple[Any, ...]:
            leaves, out, saved = known
            shapes = tuple(
                (leaf.shape, leaf.dtype)
                for leaf, fraction in zip(leaves, has_gradient, strict=True)
                if fraction
            )
            given = (*leaves, out, *saved, dout)
            options = {"number": number, "shapes": shapes, "owners": owners, "reads": reads}
            options |= {"leaves": len(leaves), "senders": tuple(senders)}
            grads = iter(op_backward.bind(*given, **options))
            return tuple(
                next(grads) if fraction else no_gradient(leaf)
                for leaf, fraction in zip(leaves, has_gradient, strict=True)
            )

        run = jax.custom_vjp(lambda *leaves: forward(*leaves)[0])
        run.defvjp(forward, backward)
        return run(*leaves)


def gradient_reads(op: Op, receiver: Any, sender: Any, edge: Any, shared: Any) -> tuple[Any, ...]:
    """What each gradient of an op needs: numbers of its rows' leaves, "out", "saved".

    A sum's gradient needs nothing of the rows that were summed, so nobody keeps them for it.
    """

    def row(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)

    rows = (row(receiver), row(sender), row(edge), shared)
    leaves, treedef = jax.tree.flatten(rows)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
    fractions = [at for at, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def said(*leaves: Any) -> Any:
        return op.message(*treedef.unflatten(leaves))

    def needed(function: Callable[..., Any], *arguments: Any) -> set[int]:
        program = flattened(jax.make_jaxpr(function)(*arguments), NODES, EDGES)
        used = {value for equation in program.equations for value in equation.inputs}
        used.update(program.results)
        return {at for at, value in enumerate(program.arguments) if value in used}

    message = jax.eval_shape(said, *shapes)
    computed = needed(said, *shapes)  # to have the message again
    found = []
    for wanted in fractions:

        def gradient(leaf: Any, gradients: Any, *others: Any, wanted: int = wanted) -> Any:
            every = [*others[:wanted], leaf, *others[wanted:]]
            return jax.vjp(lambda x: said(*every[:wanted], x, *every[wanted + 1 :]), leaf)[1](
                gradients
            )

        others = [*shapes[:wanted], *shapes[wanted + 1 :]]
        count = len(jax.tree.leaves(message))
        of_gradient = needed(gradient, shapes[wanted], message, *others)
        own = {wanted} if 0 in of_gradient else set()
        rest = {at - 1 - count for at in of_gradient if at > count}
        own |= {at if at < wanted else at + 1 for at in rest}
        kind = op.reduce.name
        if kind in ("sum", "mean"):
            found.append((*sorted(own), *(("saved",) if kind == "mean" else ())))
        else:
            found.append((*sorted(own | computed), "out", "saved"))
    return tuple(found)

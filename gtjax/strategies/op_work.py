"""One call of an op, in numbers: what strategies and the planner have to know of it.

Found by tracing, not written down: shapes come from the call, flops from the traced message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import Var

from pallas_kernels.op import Op, Split

FLOAT = 4  # bytes of a value that is summed
LINEAR = ("sum", "mean", "each")  # reductions whose gradients do not ask what the messages were


@dataclass(frozen=True)
class OpWork:
    """Bytes of a row and flops of an edge; rows are of one node, or one edge."""

    op: str
    heads: int  # that a sender's row falls into
    width: int  # values of a sender's widest table
    sender_tables: tuple[int, ...]  # bytes of each
    gradient_tables: tuple[int, ...]  # of those that have a gradient
    receiver_bytes: int
    edge_bytes: int
    edge_gradient_bytes: int
    out_values: int
    saved_values: int  # of each row, for the backward pass, beside the result
    message_flops: float  # of one edge, forward
    reads_again: bool = True  # whether the backward pass needs the senders' rows
    splits: tuple[tuple[int, Split], ...] = ()  # sizes of a feature axis, and what they share out
    whole_edges: bool = False  # when shared out: every device needs all of an edge's row

    @property
    def sender_bytes(self) -> int:
        """Of all tables of a sender."""
        return sum(self.sender_tables)

    @property
    def gradient_bytes(self) -> int:
        """Of the gradients of a sender's tables."""
        return sum(self.gradient_tables)

    @property
    def flops(self) -> float:
        """Of one edge, forward and backward: the message again, and about twice for gradients."""
        return 4.0 * self.message_flops

    def split(self, size: int) -> Split:
        """What devices of a feature axis of this size share out."""
        return dict(self.splits).get(size)

    def share(self, size: int) -> OpWork:
        """The work of each of so many devices that share heads or channels out."""
        how = self.split(size)
        if how is None:
            return self
        part = replace(
            self,
            heads=self.heads // size if how == "heads" else self.heads,
            width=self.width // size,
            sender_tables=tuple(each // size for each in self.sender_tables),
            gradient_tables=tuple(each // size for each in self.gradient_tables),
            receiver_bytes=self.receiver_bytes // size,
            out_values=self.out_values // size,
            saved_values=self.saved_values // size,
            message_flops=self.message_flops / size,
        )
        if self.whole_edges:
            return part
        return replace(
            part,
            edge_bytes=self.edge_bytes // size,
            edge_gradient_bytes=self.edge_gradient_bytes // size,
        )


SIZES = range(1, 257)  # of a feature axis that an op is asked about


def op_work(op: Op, receiver: Any, sender: Any, shared: Any, edge: Any) -> OpWork:
    """The work of one call, of arrays or their shapes."""

    def row(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)

    rows = (row(receiver), row(sender), row(edge), shared)
    message = jax.eval_shape(op.message, *rows)
    value = message[1] if op.reduce.name == "softmax" else message
    saved = {"softmax": message[0].size if op.reduce.name == "softmax" else 0, "mean": 1}
    saved |= {"sum": 0, "each": 0}
    tables = jax.tree.leaves(sender)
    widest = max(tables, key=lambda x: int(np.prod(x.shape[1:])), default=None)
    splits: tuple[tuple[int, Split], ...] = tuple(
        (size, how)
        for size in SIZES
        if (how := op.split(size, receiver, sender, edge, shared)) is not None
    )
    return OpWork(
        op=op.name,
        heads=1 if widest is None or widest.ndim < 3 else widest.shape[1],
        width=0 if widest is None else int(np.prod(widest.shape[1:])),
        sender_tables=tuple(_row_bytes(x) for x in tables),
        gradient_tables=tuple(_row_bytes(x) for x in tables if _is_fraction(x)),
        receiver_bytes=sum(map(_row_bytes, jax.tree.leaves(receiver))),
        edge_bytes=sum(map(_row_bytes, jax.tree.leaves(edge))),
        edge_gradient_bytes=sum(_row_bytes(x) for x in jax.tree.leaves(edge) if _is_fraction(x)),
        out_values=value.size,
        saved_values=saved.get(op.reduce.name, value.size),
        message_flops=flops_of(op.message, *rows) + 2.0 * value.size,
        reads_again=op.reduce.name not in ("sum", "mean", "each")
        or _gradient_reads_sender(op, rows),
        splits=splits,
        whole_edges=any(how == "channels" for _, how in splits),
    )


def _row_bytes(array: Any) -> int:
    return int(np.prod(array.shape[1:])) * np.dtype(array.dtype).itemsize


def _is_fraction(array: Any) -> bool:
    return jax.numpy.issubdtype(array.dtype, jax.numpy.inexact)


def _gradient_reads_sender(op: Op, rows: tuple[Any, ...]) -> bool:
    """Whether the derivative of a message depends on its sender's row: not if it is linear."""
    fractions, treedef = jax.tree.flatten(rows)
    chosen = [number for number, x in enumerate(fractions) if _is_fraction(x)]

    def derivative(leaves: list[Any], gradient: Any) -> Any:
        def message(some: list[Any]) -> Any:
            filled = list(leaves)
            for number, leaf in zip(chosen, some, strict=True):
                filled[number] = leaf
            return op.message(*treedef.unflatten(filled))

        return jax.vjp(message, [leaves[number] for number in chosen])[1](gradient)

    leaves = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in fractions]
    traced = jax.make_jaxpr(derivative)(leaves, jax.eval_shape(op.message, *rows)).jaxpr
    needed = {v for v in traced.outvars if isinstance(v, Var)}
    for equation in reversed(traced.eqns):
        if needed & set(equation.outvars):
            needed |= {v for v in equation.invars if isinstance(v, Var)}
    first = len(jax.tree.leaves(rows[0]))
    senders = traced.invars[first : first + len(jax.tree.leaves(rows[1]))]
    return any(v in needed for v in senders)


def flops_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Arithmetic of a traced function: two a product and sum, one an element of anything else."""
    return _jaxpr_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def _jaxpr_flops(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [p for p in equation.params.values() if hasattr(p, "eqns") or hasattr(p, "jaxpr")]
        if inner:
            total += sum(_jaxpr_flops(getattr(each, "jaxpr", each)) for each in inner)
            continue
        out = sum(int(np.prod(v.aval.shape)) for v in equation.outvars)
        if equation.primitive.name == "dot_general":
            (contract, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2.0 * out * int(np.prod([shape[axis] for axis in contract]))
        else:
            total += max(out, *(int(np.prod(v.aval.shape)) for v in equation.invars), 0)
    return total

"""Any op over edges that come in stages, differentiated by recomputing: one derivative for all.

A stage is some of the receivers' in-edges and the table that their senders are numbered in. The
table is the senders' own rows, or what `fetch` brings from elsewhere. Forward: fetch, the op's
partial, merged stage by stage, finished. Backward: the same stages again, and `bring_back` takes
the gradients of what was fetched home. A transport that `refetches` keeps nothing of what it
fetched for the backward pass, and never holds more than two stages: sequential aggregation and
rematerialisation (SAR, Mostafa 2022), for any op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial as bind
from itertools import pairwise
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.edges import Dropout, Edges
from pallas_kernels.op import Kernel, Op
from pallas_kernels.passes.xla import is_fraction

Tree = Any


@dataclass(frozen=True)
class Stage:
    """Some of the edges, and how the rows that they start from get here and back.

    fetch:      (rows, zero) -> the table of the stage; None where it is the rows themselves. `zero`
                is 0, known only when the fetching may begin: it is added to what decides what is
                fetched. None: whenever.
    bring_back: (totals, gradients of the table) -> totals, with what came home added; totals are
                None where nothing is there yet.
    """

    edges: Edges
    fetch: Callable[[Tree, jax.Array | None], Tree] | None = None
    bring_back: Callable[[Tree | None, Tree], Tree] | None = None


class Transport(Protocol):
    """How the rows that an op needs reach it. Hashable: programs are compiled for it."""

    @property
    def refetches(self) -> bool:
        """Whether the backward pass fetches again what the forward pass had."""
        ...

    def stages(self, arrays: Any) -> Sequence[Stage]:
        """The stages, of arrays that say who sends what."""
        ...


@dataclass(frozen=True)
class Local:
    """All senders are here: one stage, and its edges are all there is to know."""

    refetches: bool = False

    def stages(self, arrays: Edges) -> Sequence[Stage]:
        """The one stage."""
        return (Stage(arrays),)


LOCAL = Local()


def segment(
    op: Op,
    arrays: Any,
    *,
    receiver: Tree = None,
    sender: Tree = None,
    shared: Tree = None,
    edge: Tree = None,
    dropout: Dropout | None = None,
    kernel: str | Kernel = "auto",
    transport: Transport = LOCAL,
) -> jax.Array:
    """The op over every receiver's in-edges, differentiable in all its rows and what is shared.

    Rows of edges are those of all stages, one after the other. Sums are float32; the result has
    the type of the senders' rows, or float32 if there are none.
    """
    chosen = op.kernel(kernel) if isinstance(kernel, str) else kernel
    rate, seed = rate_and_seed(dropout)
    rows = jax.tree.map(jnp.asarray, (receiver, sender, shared, edge))
    return _segment(op, chosen, transport, rate, arrays, *rows, seed)


def rate_and_seed(dropout: Dropout | None) -> tuple[float, jax.Array]:
    """The draw of dropout as its parts, one known when compiling and one not."""
    rate = 0.0 if dropout is None else float(dropout.rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"dropout rate is in [0, 1); found {rate}")
    return rate, jnp.asarray(0 if dropout is None else dropout.seed, jnp.uint32)


@bind(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _segment(
    op: Op, kernel: Kernel, transport: Transport, rate: float, arrays, *rows_and_seed: Any
) -> jax.Array:
    return _forward(op, kernel, transport, rate, arrays, *rows_and_seed)[0]


def _forward(
    op: Op,
    kernel: Kernel,
    transport: Transport,
    rate: float,
    arrays: Any,
    receiver: Tree,
    sender: Tree,
    shared: Tree,
    edge: Tree,
    seed: jax.Array,
) -> tuple[jax.Array, Any]:
    draw = Dropout(rate, seed) if rate else None
    stages = transport.stages(arrays)
    edges_of = _by_stage(edge, stages)
    tables: list[Tree] = []
    if len(stages) == 1 and kernel.whole is not None:
        tables = [_table(stages[0], sender)]
        out, saved = kernel.whole(
            op, receiver, tables[0], shared, stages[0].edges, edges_of[0], draw
        )
    else:
        partial = None
        table = _table(stages[0], sender)
        for number, stage in enumerate(stages):
            tables.append(table)
            if number + 1 < len(stages):
                # Not before the last stage is done with, so that two of them are all there ever is.
                done = partial if transport.refetches else None
                table = _table(stages[number + 1], sender, after=done)
            one = kernel.forward(
                op, receiver, tables[-1], shared, stage.edges, edges_of[number], draw
            )
            partial = one if partial is None else op.reduce.merge(partial, one)
        out, saved = op.reduce.finish(partial)
    fetched = [
        None if stage.fetch is None or transport.refetches else table
        for stage, table in zip(stages, tables, strict=True)
    ]
    known = (arrays, receiver, sender, shared, edge, seed, fetched, out, saved)
    return out.astype(result_type(sender)), known


def _backward(
    op: Op, kernel: Kernel, transport: Transport, rate: float, known: Any, dout: jax.Array
) -> tuple[Any, ...]:
    arrays, receiver, sender, shared, edge, seed, fetched, out, saved = known
    draw = Dropout(rate, seed) if rate else None
    stages = transport.stages(arrays)
    edges_of = _by_stage(edge, stages)

    def table_of(number: int, after: Any) -> Tree:
        if fetched[number] is not None:
            return fetched[number]
        # Or the compiler would take, and keep, the rows that the forward pass fetched.
        return _table(stages[number], sender, after=after if transport.refetches else None)

    whole = [(out, dout)] * len(stages)
    if op.reduce.per_edge:
        whole = _by_stage((out, dout), stages)
    d_receiver, d_shared, home, d_edges = None, None, None, []
    table = table_of(0, dout)
    for number, stage in enumerate(stages):
        here = table
        if number + 1 < len(stages):
            table = table_of(number + 1, dout if d_receiver is None else (d_receiver, home))
        result, gradient = whole[number]
        rows = (op, receiver, here, shared, stage.edges, edges_of[number])
        more, away, of_shared, d_edge = kernel.backward(*rows, result, saved, gradient, draw)
        d_receiver, d_shared = _added(d_receiver, more), _added(d_shared, of_shared)
        if stage.bring_back is None:
            home = _added(home, away)
        elif _fractions(sender):
            home = stage.bring_back(home, away)
        d_edges.append(d_edge)
    d_edge = jax.tree.map(lambda *parts: jnp.concatenate(parts), *d_edges)
    return (
        jax.tree.map(no_gradient, arrays),
        _in_types_of(receiver, d_receiver),
        _in_types_of(sender, home),
        _in_types_of(shared, d_shared),
        _in_types_of(edge, d_edge),
        no_gradient(seed),
    )


_segment.defvjp(_forward, _backward)


def _table(stage: Stage, sender: Tree, after: Any = None) -> Tree:
    """What the edges of a stage start from, once `after` is known."""
    if stage.fetch is None or not jax.tree.leaves(sender):
        return sender
    return stage.fetch(sender, None if after is None else _zero_after(after))


def _zero_after(known: Any) -> jax.Array:
    """A zero that no compiler sees through: it would undo an optimization_barrier on a CPU."""
    first = next(leaf for leaf in jax.tree.leaves(known) if leaf.size)
    number = first.reshape(-1)[0].astype(jnp.float32)
    bits = jax.lax.bitcast_convert_type(number, jnp.int32)
    return (bits == bits ^ 1).astype(jnp.int32)


def _by_stage(edge: Tree, stages: Sequence[Stage]) -> list[Tree]:
    """Rows of edges, which stand stage after stage."""
    ends = np.cumsum([0, *(stage.edges.num_edges for stage in stages)])
    if len(stages) == 1:
        return [edge]
    return [jax.tree.map(lambda x, a=a, b=b: x[a:b], edge) for a, b in pairwise(ends)]


def _added(total: Tree | None, more: Tree) -> Tree:
    """Sums in float32, also where rows are not."""
    if total is None:
        return more
    return jax.tree.map(lambda a, b: a.astype(jnp.float32) + b, total, more)


def _fractions(tree: Tree) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if is_fraction(leaf)]


def result_type(sender: Tree) -> Any:
    """Of an op's result: that of the senders' rows, or float32 if there are none."""
    return jnp.result_type(*_fractions(sender)) if _fractions(sender) else jnp.float32


def _in_types_of(tree: Tree, gradients: Tree) -> Tree:
    """Gradients as jax wants them: in the types of what they are of."""
    left = iter(jax.tree.leaves(gradients))  # whole numbers have none
    return jax.tree.map(
        lambda x: next(left).astype(x.dtype) if is_fraction(x) else no_gradient(x), tree
    )


def no_gradient(array: jax.Array) -> np.ndarray:
    """What stands for the gradient of an array of integers."""
    return np.zeros(array.shape, jax.dtypes.float0)

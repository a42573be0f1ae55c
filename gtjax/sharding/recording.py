"""Neighbours that only record what a model asks of them: for tracing, without a graph.

Run a model under `jax.eval_shape` (or `jax.make_jaxpr`) with these, and `calls` says which ops it
uses, on which rows. The results have the right shapes and types and depend on everything that they
would depend on; their numbers mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from gtjax.sharding.neighbours import Drawn, OpMethods
from gtjax.strategies import OpWork, Strategy, op_work
from gtjax.strategies.run import is_local
from pallas_kernels import DOT_PRODUCT, OPS, Op
from pallas_kernels.driver import result_type
from pallas_kernels.edges import EdgeForm
from pallas_kernels.propagation import propagation_needs
from pallas_kernels.trial import RowShapes


@dataclass(frozen=True)
class Call:
    """One use of an op: `rounds` of it with the same weights, if it is propagation."""

    op: Op
    work: OpWork
    rounds: int = 0
    apart: tuple[Call, ...] = ()  # the ops that it is where senders are on other devices
    rows: RowShapes = field(default_factory=RowShapes, compare=False)


@dataclass
class RecordingNeighbours(OpMethods):
    """Notes every call, in the order in which the model makes them."""

    degree_n: jax.Array
    calls: list[Call] = field(default_factory=list)

    def apply(
        self,
        op: Op | str,
        *,
        receiver: Any = None,
        sender: Any = None,
        edge: Any = None,
        shared: Any = None,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Note the op, and give something of the shape of its result."""
        op = OPS[op] if isinstance(op, str) else op
        work = op_work(op, receiver, sender, shared, edge)
        rows = RowShapes.of(receiver, sender, edge, shared)
        self.calls.append(Call(op, work, rows=rows))
        return self._result(op, receiver, sender, edge, shared)

    def propagate(
        self,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None = None,
        *,
        rounds: int,
        restart: float,
        dropout: Drawn = None,
    ) -> jax.Array:
        """Note the attention that is propagated by."""
        rows = (q_nhd, (k_nhd, v_nhd), bias_eh, None)
        work = op_work(DOT_PRODUCT, q_nhd, (k_nhd, v_nhd), None, bias_eh)
        apart = RecordingNeighbours(self.degree_n)
        options: dict[str, Any] = {"rounds": rounds, "restart": restart, "dropout": dropout}
        OpMethods.propagate(apart, q_nhd, k_nhd, v_nhd, bias_eh, **options)
        self.calls.append(Call(DOT_PRODUCT, work, rounds, tuple(apart.calls)))
        return self._result(DOT_PRODUCT, *rows).astype(v_nhd.dtype)

    def _result(self, op: Op, receiver: Any, sender: Any, edge: Any, shared: Any) -> jax.Array:
        def row(tree: Any) -> Any:
            return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), tree)

        message = jax.eval_shape(op.message, row(receiver), row(sender), row(edge), shared)
        value = message[1] if op.reduce.name == "softmax" else message
        numbers = jax.tree.leaves((receiver, sender, edge, shared))
        seen = sum((x.astype(jnp.float32).sum() for x in numbers), jnp.float32(0))
        out = jnp.broadcast_to(seen, (self.degree_n.shape[0], *value.shape))
        return out.astype(result_type(sender))


def forms_of(
    calls: Iterable[Call], kernel: str, platform: str, strategies: Iterable[Strategy]
) -> tuple[EdgeForm, ...]:
    """The forms of the edges that the kernels of these ops need under these strategies."""
    forms: set[EdgeForm] = set()
    calls = list(calls)
    for call in calls:
        if call.rounds:
            forms |= {*propagation_needs(call.op.kernel(kernel, platform))}
    for call in single_calls(calls, strategies):
        forms |= {*call.op.kernel(kernel, platform).needs}
    return tuple(sorted(forms))


def single_calls(calls: Iterable[Call], strategies: Iterable[Strategy]) -> list[Call]:
    """What ops are called for under these strategies: all but propagation as a whole."""
    apart = any(not is_local(strategy) for strategy in strategies)
    found = ((call.apart if apart else ()) if call.rounds else (call,) for call in calls)
    return [each for some in found for each in some]

"""An op's message as kernels trace it into their bodies, and the gradients of its reduction.

A kernel holds numbers in a layout of its own: on a GPU blocks `[pieces, heads, channels]`, on a TPU
the channels of all heads in the lanes. So a message is written once with `channels`, which sums and
spreads over the channels of heads in either, and is otherwise a function of numbers that broadcast.
The bodies differentiate it by `jax.vjp`; nothing but this file and the tables of rows that go in
differs between the ops that share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from pallas_kernels.edges import Edges
from pallas_kernels.op import Op
from pallas_kernels.reductions import MeanPartial, SoftmaxPartial


class Channels(Protocol):
    """How a kernel goes from the channels of heads to numbers of heads, and back."""

    def sum(self, x: jax.Array) -> jax.Array:
        """The sum over each head's channels."""
        ...

    def spread(self, x: jax.Array) -> jax.Array:
        """Each head's number, for all its channels."""
        ...


def _as_it_is(rows: Any) -> Any:
    return rows


@dataclass(frozen=True)
class Traced:
    """A message, and what of it can be done once for all edges of a row.

    message:     (receiver, sender, edge, shared, channels) -> as the op's own message
    of_receiver: a receiver's rows as `message` takes them, where the edges are walked by receiver
    of_sender:   a sender's rows, where they are walked by sender
    """

    message: Callable[..., Any]
    of_receiver: Callable[[Any], Any] = _as_it_is
    of_sender: Callable[[Any], Any] = _as_it_is


# (op, channels of a head) -> its message
Tracer = Callable[[Op, int], Traced]


def is_softmax(op: Op) -> bool:
    """Whether messages are pairs (logit, value), or values whose sum is wanted."""
    return op.reduce.name == "softmax"


def terms_of(op: Op, out: jax.Array, saved: Any, dout: jax.Array) -> tuple[jax.Array, ...]:
    """What the backward pass needs of a receiver: tables of rows, `dout` in its own type."""
    if not is_softmax(op):
        # The gradient of a mean is rounded to that type before it is gathered, as `dout` was.
        return (op.reduce.terms(out, saved, dout).astype(dout.dtype),)
    lse_rh, delta_rh, _ = op.reduce.terms(out.astype(jnp.float32), saved, dout)
    return dout, lse_rh, delta_rh


def softmax_gradients(
    said: Any, terms: Any, there: jax.Array, keep: Any, channels: Channels
) -> tuple[jax.Array, jax.Array]:
    """Gradients of the logit and the value of edges, recomputed; `there`: which have a weight."""
    (logits, values), (dout, lse, delta) = said, terms
    weights = jnp.where(there, jnp.exp(logits - lse), 0.0)
    dweights = channels.sum(dout * values) * keep
    return weights * (dweights - delta), channels.spread(weights * keep) * dout


def sum_gradients(terms: Any, keep: Any, channels: Channels) -> jax.Array:
    """Gradient of the value of edges."""
    (dout,) = terms
    return dout if isinstance(keep, float) else channels.spread(keep) * dout


def partial_of(op: Op, edges: Edges, acc_rhd: jax.Array, *of_heads: jax.Array) -> Any:
    """The partial, of sums over rows and, for a softmax, largest logits and sums of weights."""
    if is_softmax(op):
        max_rh, sum_rh = (
            of_heads if len(of_heads) == 2 else (*of_heads, jnp.zeros_like(of_heads[0]))
        )
        return SoftmaxPartial(max_rh, sum_rh, acc_rhd)
    if op.reduce.name == "mean":
        offsets_r = jnp.asarray(edges.offsets_r)
        return MeanPartial(acc_rhd, (offsets_r[1:] - offsets_r[:-1]).astype(jnp.float32))
    return acc_rhd


def wide_table(sender: Any) -> jax.Array:
    """A table of senders that has channels: `[senders, heads, channels]`."""
    return next(leaf for leaf in jax.tree.leaves(sender) if leaf.ndim == 3)

"""Every op with rows to run it on, and the same in float64 over whole lists of edges, by itself.

The references share nothing with the ops but the formulas of the papers: they gather all rows, and
reduce with jax's segment functions, which differentiates as jax does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels import (
    DOT_PRODUCT,
    LARGEST,
    SMALLEST,
    WEIGHTED_MEAN,
    WEIGHTED_SUM,
    Op,
    custom,
    gat,
    gatv2,
)
from pallas_kernels.edges.dropout import Dropout, keep_scale

HEADS, WIDTH = 8, 4
DROPOUT = Dropout(0.3, 11)

Reference = Callable[..., Any]  # (receiver rows, sender rows, edge rows, shared, keep, reduce)


@dataclass(frozen=True)
class Case:
    """An op, shapes of its rows, and what it computes."""

    op: Op
    receiver: Any
    sender: Any
    edge: Any
    shared: Any
    reference: Reference
    heads: int = HEADS  # that dropout draws for; 0: no dropout

    def rows(self, nodes: int, edges: int, seed: int = 0) -> dict[str, Any]:
        """Random rows; values are far enough apart for extremes to be the same in float32."""
        rng = np.random.default_rng(seed)

        def draw(leading: tuple[int, ...]) -> Callable[[tuple[int, ...]], np.ndarray]:
            return lambda shape: rng.standard_normal((*leading, *shape)).astype(np.float32)

        def tree(shapes: Any, leading: tuple[int, ...]) -> Any:
            return jax.tree.map(draw(leading), shapes, is_leaf=_is_shape)

        return {
            "receiver": tree(self.receiver, (nodes,)),
            "sender": tree(self.sender, (nodes,)),
            "edge": tree(self.edge, (edges,)),
            "shared": tree(self.shared, ()),
        }

    def oracle(
        self,
        rows: dict[str, Any],
        senders: np.ndarray,
        receivers: np.ndarray,
        dout: np.ndarray,
        dropout: Dropout | None = None,
        numbers: np.ndarray | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Output, and the gradients of all rows for `dout`, in float64.

        `numbers` are those of the edges in the whole graph, by which dropout draws.
        """
        keep = None
        numbers = np.arange(len(senders)) if numbers is None else numbers
        if dropout is not None and self.heads:
            keep = np.asarray(keep_scale(dropout, jnp.asarray(numbers), self.heads), np.float64)

        @jax.jit  # one small program instead of dozens
        def both(rows: Any, keep: Any, dout: Any, *ends: jax.Array) -> Any:
            def compute(rows: Any) -> jax.Array:
                return self._reference(rows, keep, len(dout), *ends)

            out, pull = jax.vjp(compute, rows)
            return out, pull(dout)[0]

        with jax.enable_x64(True):
            exact = jax.tree.map(lambda x: np.asarray(x, np.float64), (rows, keep, dout))
            return jax.tree.map(np.asarray, both(*exact, senders, receivers))

    def _reference(
        self, rows: Any, keep: Any, nodes: int, senders: jax.Array, receivers: jax.Array
    ) -> jax.Array:
        at_receivers = jax.tree.map(lambda x: x[receivers], rows["receiver"])
        at_senders = jax.tree.map(lambda x: x[senders], rows["sender"])
        reduce = Reduce(receivers, nodes)
        return self.reference(at_receivers, at_senders, rows["edge"], rows["shared"], keep, reduce)

    def out_shape(self, nodes: int) -> tuple[int, ...]:
        """Of the result."""
        ends = np.zeros(1, int), np.zeros(1, int)
        compute = functools.partial(self._reference, keep=None, nodes=nodes)
        return jax.eval_shape(
            lambda rows, *ends: compute(rows, senders=ends[0], receivers=ends[1]),
            self.rows(nodes, 1),
            *ends,
        ).shape


class Reduce:
    """Reductions of whole lists of edges."""

    def __init__(self, receivers: jax.Array, nodes: int):
        self.receivers, self.nodes = receivers, nodes

    def sum(self, values: jax.Array) -> jax.Array:
        return jnp.zeros((self.nodes, *values.shape[1:])).at[self.receivers].add(values)

    def mean(self, values: jax.Array) -> jax.Array:
        count = jnp.zeros(self.nodes).at[self.receivers].add(1.0)
        return self.sum(values) / jnp.maximum(count, 1).reshape(-1, *(1,) * (values.ndim - 1))

    def max(self, values: jax.Array) -> jax.Array:
        """With the gradient shared by ties, as the mean of those that are largest."""
        least = jnp.full((self.nodes, *values.shape[1:]), -jnp.inf)
        best = least.at[self.receivers].max(jax.lax.stop_gradient(values))
        chosen = jax.lax.stop_gradient(values == best[self.receivers])
        ties = self.sum(jnp.where(chosen, 1.0, 0.0))
        return self.sum(jnp.where(chosen, values, 0.0)) / jnp.maximum(ties, 1)

    def softmax(self, logits: jax.Array, values: jax.Array, keep: Any) -> jax.Array:
        largest = jnp.full((self.nodes, *logits.shape[1:]), -jnp.inf)
        largest = largest.at[self.receivers].max(jax.lax.stop_gradient(logits))
        p = jnp.exp(logits - largest[self.receivers])
        p = p / self.sum(p)[self.receivers]
        p = p if keep is None else p * keep.reshape(p.shape)
        return self.sum(p.reshape(*p.shape, *(1,) * (values.ndim - p.ndim)) * values)


def _is_shape(x: Any) -> bool:
    return isinstance(x, tuple) and all(isinstance(size, int) for size in x)


def _attention(q, kv, bias, shared, keep, reduce):
    k, v = kv
    logits = jnp.einsum("ehd,ehd->eh", q, k) / np.sqrt(q.shape[-1])
    return reduce.softmax(logits if bias is None else logits + bias, v, keep)


def _gat(s, tv, bias, shared, keep, reduce):
    t, v = tv
    x = s + t if bias is None else s + t + bias
    return reduce.softmax(jnp.maximum(x, 0.2 * x), v, keep)


def _gatv2(left, right, e, a, keep, reduce):
    x = left + right if e is None else left + right + e
    return reduce.softmax(jnp.einsum("hd,ehd->eh", a, jnp.maximum(x, 0.2 * x)), right, keep)


def _weighted(reduction):
    def compute(receiver, x, weight, shared, keep, reduce):
        x = x if weight is None else weight[..., None] * x
        x = x if keep is None else keep.reshape(-1, keep.shape[1], 1) * x
        return getattr(reduce, reduction)(x)

    return compute


def _message(receiver, sender, edge, shared):
    """Something that no other op is: gated by the receiver, with a matrix that is shared."""
    hidden = jnp.tanh(sender["x"] @ shared["w"] + edge["e"])
    return hidden * jax.nn.sigmoid(receiver["g"]) + shared["b"] * sender["y"]


def _custom(reduction):
    def compute(receiver, sender, edge, shared, keep, reduce):
        hidden = jnp.tanh(jnp.einsum("ef,fg->eg", sender["x"], shared["w"]) + edge["e"])
        value = hidden / (1 + jnp.exp(-receiver["g"])) + shared["b"] * sender["y"]
        value = value if keep is None else value * keep.reshape(-1, 1)
        return getattr(reduce, reduction)(value)

    return compute


def _softmax_message(receiver, sender, edge, shared):
    logit = jnp.sin(receiver @ shared) + edge["a"] * sender[0]
    return logit, jnp.cos(sender) * edge["b"]


def _custom_softmax(receiver, sender, edge, shared, keep, reduce):
    logit = jnp.sin(jnp.einsum("ef,f->e", receiver, shared)) + edge["a"] * sender[:, 0]
    return reduce.softmax(logit, jnp.cos(sender) * edge["b"], keep)


HD = (HEADS, WIDTH)
ROWS = {
    "receiver": {"g": (6,)},
    "sender": {"x": (5,), "y": (6,)},
    "edge": {"e": (6,)},
    "shared": {"w": (5, 6), "b": (6,)},
}
CASES: dict[str, Case] = {
    "dot_product": Case(DOT_PRODUCT, HD, (HD, HD), None, None, _attention),
    "dot_product, bias": Case(DOT_PRODUCT, HD, (HD, HD), (HEADS,), None, _attention),
    "gat": Case(gat(), (HEADS,), ((HEADS,), HD), None, None, _gat),
    "gat, bias": Case(gat(), (HEADS,), ((HEADS,), HD), (HEADS,), None, _gat),
    "gatv2": Case(gatv2(), HD, HD, None, HD, _gatv2),
    "gatv2, edges": Case(gatv2(), HD, HD, HD, HD, _gatv2),
    "sum": Case(WEIGHTED_SUM, None, HD, None, None, _weighted("sum")),
    "sum, weights": Case(WEIGHTED_SUM, None, HD, (HEADS,), None, _weighted("sum")),
    "mean, weights": Case(WEIGHTED_MEAN, None, HD, (HEADS,), None, _weighted("mean")),
    "mean, one head": Case(WEIGHTED_MEAN, None, (1, 8), None, None, _weighted("mean"), heads=1),
    "max": Case(LARGEST, None, (8,), None, None, lambda r, x, e, s, k, reduce: reduce.max(x), 0),
    "min": Case(SMALLEST, None, (8,), None, None, lambda r, x, e, s, k, reduce: -reduce.max(-x), 0),
    "custom sum": Case(custom(_message), **ROWS, reference=_custom("sum"), heads=1),
    "custom mean": Case(custom(_message, "mean"), **ROWS, reference=_custom("mean"), heads=1),
    "custom max": Case(custom(_message, "max"), **ROWS, reference=_custom("max"), heads=0),
    "custom softmax": Case(
        custom(_softmax_message, "softmax"),
        *((6,), (6,), {"a": (), "b": (6,)}, (6,)),
        reference=_custom_softmax,
        heads=1,
    ),
}

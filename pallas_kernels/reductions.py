"""How what the edges of a row say becomes one result: sums, means, extremes, softmax.

A *partial* is the unfinished result over some of a row's edges. Partials of disjoint edges merge
associatively, so a row may be split over tiles, chunks, devices or rotations of a ring and still
give the same result (for softmax: Rabe and Staats 2021, Dao et al. 2022). `finish` makes of the
partial over all edges the result, and what of it the backward pass needs: numbers per row, never
per edge. `gradients` is that backward pass: what every edge's message is to blame for, recomputed.

Numbers of edges stand in *slots*, `[tiles, slots of a tile, ...]`; `real` says which slots hold an
edge. A row without edges gets zeros, and no gradient. NaN stays NaN, for whoever guards training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

# The maximum over no edges at all. Finite, so that differences of two of them are not NaN.
NOTHING = float(np.finfo(np.float32).min) / 2


class Slots(NamedTuple):
    """What a reduction has to know of slots besides their messages."""

    real_tw: jax.Array  # whether there is an edge
    keep: Any  # dropout's factor, for every head; 1.0 without
    ids: Callable[[], jax.Array]  # the edges' numbers in the whole graph, [tiles, slots]


class Reduction(Protocol):
    """One way of reducing the messages of a row's edges."""

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def nothing(self) -> Any:
        """The partial over no edges, as a tree of numbers."""
        ...

    def of_slots(self, messages: Any, slots: Slots) -> Any:
        """The partial over the slots of each tile."""
        ...

    def merge_axis(self, parts: Any) -> Any:
        """Merge partials stacked along axis 1."""
        ...

    def merge(self, a: Any, b: Any) -> Any:
        """The partial over the edges of both; associative and commutative."""
        ...

    @property
    def per_edge(self) -> bool:
        """Whether nothing is reduced: a result for every edge."""
        ...

    def finish(self, partial: Any) -> tuple[jax.Array, Any]:
        """The result, and what `terms` takes of it."""
        ...

    def terms(self, out: jax.Array, saved: Any, dout: jax.Array) -> Any:
        """What `gradients` has to know of a row."""
        ...

    def gradients(self, messages: Any, terms: Any, slots: Slots) -> Any:
        """Gradients of the messages; `terms` are those of each slot's row."""
        ...


class SoftmaxPartial(NamedTuple):
    """Softmax over some edges of each row: largest logit, sum of weights, weighted values."""

    max_rh: jax.Array
    sum_rh: jax.Array
    acc_rhd: jax.Array


class SoftmaxTerms(NamedTuple):
    """Of each row: logarithm of its sum of weights, what the softmax subtracts, and dout."""

    lse_rh: jax.Array
    delta_rh: jax.Array
    dout_rhd: jax.Array


@dataclass(frozen=True)
class Softmax:
    """Values weighted by the softmax of the logits: messages are pairs (logit, value).

    A value has the axes of its logit first, usually heads, and then its own.
    """

    name: str = "softmax"
    per_edge: bool = False

    @property
    def nothing(self) -> Any:
        """No logit, no weight."""
        return SoftmaxPartial(NOTHING, 0.0, 0.0)  # pyright: ignore[reportArgumentType]

    def of_slots(self, messages: Any, slots: Slots) -> SoftmaxPartial:
        """Max-subtracted within each tile."""
        logits, values = messages
        real = widened(slots.real_tw, logits)
        # Comparisons written so that a NaN stays one: it must reach the guard of the training.
        logits = jnp.where(real & ~(logits < NOTHING), logits, NOTHING)
        most = logits.max(axis=1)
        weights = jnp.where(logits <= NOTHING, 0.0, jnp.exp(logits - most[:, None]))
        acc = (widened(weights * slots.keep, values) * masked(values, slots.real_tw)).sum(axis=1)
        return SoftmaxPartial(most, weights.sum(axis=1), acc)

    def merge_axis(self, parts: SoftmaxPartial) -> SoftmaxPartial:
        """Each shrinks to the largest logit of all."""
        most = parts.max_rh.max(axis=1)
        scale = jnp.exp(parts.max_rh - most[:, None])
        acc = (parts.acc_rhd * widened(scale, parts.acc_rhd)).sum(axis=1)
        return SoftmaxPartial(most, (parts.sum_rh * scale).sum(axis=1), acc)

    def merge(self, a: SoftmaxPartial, b: SoftmaxPartial) -> SoftmaxPartial:
        """Both shrink to the larger logit of the two."""
        most = jnp.maximum(a.max_rh, b.max_rh)
        of_a, of_b = jnp.exp(a.max_rh - most), jnp.exp(b.max_rh - most)
        acc = a.acc_rhd * widened(of_a, a.acc_rhd) + b.acc_rhd * widened(of_b, b.acc_rhd)
        return SoftmaxPartial(most, a.sum_rh * of_a + b.sum_rh * of_b, acc)

    def finish(self, partial: SoftmaxPartial) -> tuple[jax.Array, jax.Array]:
        """Normalised, and the logarithm of each row's sum of weights."""
        some = partial.sum_rh != 0
        total = jnp.where(some, partial.sum_rh, 1.0)
        lse = jnp.where(some, partial.max_rh + jnp.log(total), 0.0)
        return partial.acc_rhd / widened(total, partial.acc_rhd), lse

    def terms(self, out: jax.Array, saved: jax.Array, dout: jax.Array) -> SoftmaxTerms:
        """With sum_j p_ij (dout_i . v_j), which the softmax subtracts from every edge's."""
        dout = dout.astype(jnp.float32)
        delta = (dout * out).sum(axis=tuple(range(saved.ndim, out.ndim)))
        return SoftmaxTerms(saved, delta, dout)

    def gradients(self, messages: Any, terms: SoftmaxTerms, slots: Slots) -> Any:
        """Of logits and of values."""
        logits, values = messages
        there = widened(slots.real_tw, logits) & ~(logits <= NOTHING)
        weights = jnp.where(there, jnp.exp(logits - terms.lse_rh), 0.0)
        own = tuple(range(logits.ndim, values.ndim))
        dweights = (terms.dout_rhd * masked(values, slots.real_tw)).sum(axis=own) * slots.keep
        dlogits = weights * (dweights - terms.delta_rh)
        return dlogits, widened(weights * slots.keep, values) * terms.dout_rhd


@dataclass(frozen=True)
class Sum:
    """The sum of the messages."""

    name: str = "sum"
    per_edge: bool = False
    nothing: float = 0.0

    def of_slots(self, messages: jax.Array, slots: Slots) -> jax.Array:
        """The sum of what is kept."""
        return (masked(messages, slots.real_tw) * widened(slots.keep, messages)).sum(axis=1)

    def merge_axis(self, parts: Any) -> Any:
        """Sums add up."""
        return sum_axis(parts)

    def merge(self, a: Any, b: Any) -> Any:
        """Sums add up."""
        return jax.tree.map(jnp.add, a, b)

    def finish(self, partial: jax.Array) -> tuple[jax.Array, None]:
        """As it is."""
        return partial, None

    def terms(self, out: jax.Array, saved: None, dout: jax.Array) -> jax.Array:
        """The gradient of the sum is that of every message."""
        return dout.astype(jnp.float32)

    def gradients(self, messages: jax.Array, terms: jax.Array, slots: Slots) -> Any:
        """The same for every message of a row, but for dropout."""
        return masked(jnp.broadcast_to(terms, messages.shape), slots.real_tw) * widened(
            slots.keep, messages
        )


class MeanPartial(NamedTuple):
    """The sum over some edges of each row, and how many those are."""

    sum_r: jax.Array
    count_r: jax.Array


@dataclass(frozen=True)
class Mean:
    """The sum of the messages over their number; dropout does not change the number."""

    name: str = "mean"
    per_edge: bool = False

    @property
    def nothing(self) -> Any:
        """No sum of no edges."""
        return MeanPartial(0.0, 0.0)  # pyright: ignore[reportArgumentType]

    def of_slots(self, messages: jax.Array, slots: Slots) -> MeanPartial:
        """The sum of what is kept, and the count of all."""
        count_t = slots.real_tw.sum(axis=1, dtype=jnp.float32)
        return MeanPartial(Sum().of_slots(messages, slots), count_t)

    def merge_axis(self, parts: Any) -> Any:
        """Sums add up."""
        return sum_axis(parts)

    def merge(self, a: Any, b: Any) -> Any:
        """Sums add up."""
        return jax.tree.map(jnp.add, a, b)

    def finish(self, partial: MeanPartial) -> tuple[jax.Array, jax.Array]:
        """Divided by the number of edges."""
        count = jnp.maximum(partial.count_r, 1.0)
        return partial.sum_r / widened(count, partial.sum_r), count

    def terms(self, out: jax.Array, saved: jax.Array, dout: jax.Array) -> jax.Array:
        """Each message has its share of the gradient."""
        return dout.astype(jnp.float32) / widened(saved, dout)

    def gradients(self, messages: jax.Array, terms: jax.Array, slots: Slots) -> Any:
        """As of a sum."""
        return Sum().gradients(messages, terms, slots)


class ExtremePartial(NamedTuple):
    """The largest message over some edges of each row, and how many edges have it."""

    best_r: jax.Array
    ties_r: jax.Array


class ExtremeTerms(NamedTuple):
    """The extreme of a row, and the share of its gradient for each edge that has it."""

    best_r: jax.Array
    share_r: jax.Array


@dataclass(frozen=True)
class Extreme:
    """The largest message, or the smallest, channel by channel; ties share the gradient."""

    name: str = "max"
    sign: int = 1
    per_edge: bool = False

    @property
    def nothing(self) -> Any:
        """Less than anything, on no edge."""
        return ExtremePartial(-np.inf, 0.0)  # pyright: ignore[reportArgumentType]

    def of_slots(self, messages: jax.Array, slots: Slots) -> ExtremePartial:
        """The largest of each tile."""
        refuse_dropout(self.name, slots)
        real = widened(slots.real_tw, messages)
        signed = jnp.where(real, self.sign * messages, -jnp.inf)
        best = signed.max(axis=1)
        ties = (real & (signed == best[:, None])).sum(axis=1, dtype=jnp.float32)
        return ExtremePartial(best, ties)

    def merge_axis(self, parts: ExtremePartial) -> ExtremePartial:
        """Edges count where they have the largest of all."""
        best = parts.best_r.max(axis=1)
        ties = jnp.where(parts.best_r == best[:, None], parts.ties_r, 0.0).sum(axis=1)
        return ExtremePartial(best, ties)

    def merge(self, a: ExtremePartial, b: ExtremePartial) -> ExtremePartial:
        """Edges count where they have the larger of the two."""
        best = jnp.maximum(a.best_r, b.best_r)
        ties = sum(jnp.where(x.best_r == best, x.ties_r, 0.0) for x in (a, b))
        return ExtremePartial(best, jnp.asarray(ties))

    def finish(self, partial: ExtremePartial) -> tuple[jax.Array, jax.Array]:
        """The extreme, and on how many edges it is; 0 on none."""
        there = (partial.ties_r > 0) | jnp.isnan(partial.best_r)
        return jnp.where(there, self.sign * partial.best_r, 0.0), partial.ties_r

    def terms(self, out: jax.Array, saved: jax.Array, dout: jax.Array) -> ExtremeTerms:
        """Ties share."""
        return ExtremeTerms(out, dout.astype(jnp.float32) / jnp.maximum(saved, 1.0))

    def gradients(self, messages: jax.Array, terms: ExtremeTerms, slots: Slots) -> jax.Array:
        """The share, where a message is the extreme."""
        chosen = widened(slots.real_tw, messages) & (messages == terms.best_r)
        return jnp.where(chosen, terms.share_r, 0.0)


def _winner(a: Any, b: Any) -> Any:
    """The larger of two pairs (value, edge), a NaN before all; of equals that of the lower edge."""
    (value, edge), (other, its_edge) = a, b
    equal = (value == other) | (jnp.isnan(value) & jnp.isnan(other))
    first = (value > other) | (jnp.isnan(value) & ~jnp.isnan(other)) | (equal & (edge <= its_edge))
    return jnp.where(first, value, other), jnp.where(first, edge, its_edge)


class WinnerPartial(NamedTuple):
    """The largest message over some edges of each row, and the lowest number of an edge with it."""

    best_r: jax.Array
    winner_r: jax.Array


class WinnerTerms(NamedTuple):
    """The edge that an extreme of a row is of, and its gradient."""

    winner_r: jax.Array
    dout_r: jax.Array


@dataclass(frozen=True)
class Winner:
    """The largest message, or the smallest; of ties the edge with the lowest number has all.

    For messages that are computed: computed again they may differ in the last bit, so that equality
    would find nobody.
    """

    name: str = "max"
    sign: int = 1
    per_edge: bool = False

    @property
    def nothing(self) -> Any:
        """Less than anything, of nobody."""
        return WinnerPartial(-np.inf, NOBODY)  # pyright: ignore[reportArgumentType]

    def of_slots(self, messages: jax.Array, slots: Slots) -> WinnerPartial:
        """The largest of each tile."""
        refuse_dropout(self.name, slots)
        real = widened(slots.real_tw, messages)
        signed = jnp.where(real, self.sign * messages, -jnp.inf)
        ids = jnp.where(real, widened(slots.ids(), messages), NOBODY)
        return self.merge_axis(WinnerPartial(signed, jnp.broadcast_to(ids, signed.shape)))

    def merge_axis(self, parts: WinnerPartial) -> WinnerPartial:
        """The largest of all, with its edge in one reduction.

        Found by comparing with a maximum that was found before, it may be nobody's: XLA is free to
        compute the messages twice, and twice differently.
        """
        best = jnp.asarray(parts.best_r)
        start = (np.asarray(-np.inf, best.dtype), np.asarray(NOBODY, parts.winner_r.dtype))
        return WinnerPartial(*jax.lax.reduce(tuple(parts), start, _winner, (1,)))

    def merge(self, a: WinnerPartial, b: WinnerPartial) -> WinnerPartial:
        """The larger of the two."""
        return WinnerPartial(*_winner(tuple(a), tuple(b)))

    def finish(self, partial: WinnerPartial) -> tuple[jax.Array, jax.Array]:
        """The extreme, and the edge that it is of; 0 of nobody."""
        there = partial.winner_r != NOBODY
        return jnp.where(there, self.sign * partial.best_r, 0.0), partial.winner_r

    def terms(self, out: jax.Array, saved: jax.Array, dout: jax.Array) -> WinnerTerms:
        """All of the gradient is the winner's."""
        return WinnerTerms(saved, dout.astype(jnp.float32))

    def gradients(self, messages: jax.Array, terms: WinnerTerms, slots: Slots) -> jax.Array:
        """All of it, where an edge has won."""
        ids = widened(slots.ids(), messages)
        return jnp.where(
            widened(slots.real_tw, messages) & (ids == terms.winner_r), terms.dout_r, 0
        )


@dataclass(frozen=True)
class Each:
    """Nothing is reduced: the message of every edge, in the order of the edges.

    The only one whose result grows with the edges; choose it for numbers that serve many ops.
    """

    name: str = "each"
    per_edge: bool = True
    nothing: float = 0.0

    def of_slots(self, messages: jax.Array, slots: Slots) -> jax.Array:
        """As they are."""
        return messages

    def merge_axis(self, parts: Any) -> Any:
        """Edges are never merged."""
        raise TypeError("messages of edges are not reduced")

    def merge(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """Edges of both, one after the other."""
        return jnp.concatenate([a, b])

    def finish(self, partial: jax.Array) -> tuple[jax.Array, None]:
        """As it is."""
        return partial, None

    def terms(self, out: jax.Array, saved: None, dout: jax.Array) -> jax.Array:
        """Every edge has its own gradient."""
        return dout.astype(jnp.float32)

    def gradients(self, messages: jax.Array, terms: jax.Array, slots: Slots) -> jax.Array:
        """Each its own."""
        return masked(terms, slots.real_tw)


NOBODY = np.uint32(2**32 - 1)
SUM, MEAN, MAX, MIN, SOFTMAX = Sum(), Mean(), Extreme(), Extreme("min", -1), Softmax()
EACH = Each()
# Of messages that may be any function.
REDUCTIONS: dict[str, Reduction] = {
    each.name: each for each in (SUM, MEAN, Winner(), Winner("min", -1), SOFTMAX)
}


def refuse_dropout(name: str, slots: Slots) -> None:
    """Extremes have none."""
    if not (isinstance(slots.keep, float) and slots.keep == 1.0):
        no_dropout(name)


def no_dropout(name: str) -> None:
    """Raise what asking for dropout of an extreme gives."""
    raise ValueError(f"{name} has no dropout: leaving an edge out changes its meaning")


def widened(numbers: Any, like: jax.Array) -> Any:
    """With axes of one at the end, to go with an array that has more."""
    if isinstance(numbers, float):
        return numbers
    return numbers.reshape(*numbers.shape, *(1,) * (like.ndim - numbers.ndim))


def masked(values: jax.Array, real_tw: jax.Array) -> jax.Array:
    """Zero where there is no edge, whatever stands there."""
    return jnp.where(widened(real_tw, values), values, 0.0)


def sum_axis(parts: Any) -> Any:
    """Merge sums stacked along axis 1."""
    return jax.tree.map(lambda x: x.sum(axis=1), parts)

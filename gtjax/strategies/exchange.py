"""Which rows travel between which parts, and when: rounds in which each part hears from one other.

A part needs the rows of other parts that its edges start from, its *halo*. All devices run the same
program, so all messages of a round are as long as the longest of them: the rounds are matched such
that messages of similar length travel together, which costs far less than one all-to-all padded to
the longest of all. A round is a `ppermute`, and only pairs that have something to say take part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from gtjax.partition import Cut, EvenCut
from gtjax.strategies.base import NODE, Transfer
from gtjax.strategies.numbering import Numbering
from gtjax.strategies.part_edges import PartEdges
from pallas_kernels.segment_attention import EdgeList

MATCHED_PARTS = 128  # beyond, matching takes minutes, and rotations have to do
WASTE = 1.4  # longest that a round may be, over the mean of what is said in it


@dataclass(frozen=True)
class Messages:
    """What travels at once: pairs of (from, to), and rows of each, padding included."""

    pairs: tuple[tuple[int, int], ...]
    rows: int


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Round:
    """Messages with their content: rows that a part sends, one past its last for padding."""

    rows_s: Any
    messages: Messages = field(metadata={"static": True})


@dataclass(frozen=True)
class Exchange:
    """The rounds, with a leading axis of parts, and what arrives at each part in each of them."""

    rounds: tuple[Round, ...]
    arrivals: list[list[np.ndarray]]  # [part][round]: positions of the senders, ascending


def plan_rounds(halo_pq: np.ndarray) -> list[Messages]:
    """Rounds in which each part receives all it needs: `halo_pq[p, q]` rows of part q for p.

    Greedy: the pairs with most to say that can talk at once, round after round. Where the lengths
    within a round differ much, the round is as long as pays, and what is left waits for another.
    """
    left_pq = np.array(halo_pq, np.int64)
    np.fill_diagonal(left_pq, 0)
    rounds = []
    while left_pq.any():
        receivers, senders = _matching(left_pq, len(rounds))
        lengths = left_pq[receivers, senders]
        rows = _length_that_pays(lengths)
        rounds.append(Messages(tuple(zip(senders.tolist(), receivers.tolist(), strict=True)), rows))
        left_pq[receivers, senders] -= np.minimum(lengths, rows)
    return rounds


def halo_rounds(cut: Cut) -> list[Messages]:
    """The rounds of an exchange, from counts alone."""
    if isinstance(cut, EvenCut):  # every part hears from every other, all messages alike
        rows = -(-int(cut.halo_p.max()) // max(1, cut.num_parts - 1))
        return [Messages((), rows)] * (cut.num_parts - 1) if rows else []
    return plan_rounds(cut.halo_pq)


def _matching(left_pq: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Receivers and senders that talk at once: with most rows in all, or the next rotation."""
    parts = len(left_pq)
    if parts <= MATCHED_PARTS:
        receivers, senders = linear_sum_assignment(left_pq, maximize=True)
    else:
        receivers = np.arange(parts)
        senders = (receivers + 1 + number % (parts - 1)) % parts
    some = left_pq[receivers, senders] > 0
    return receivers[some], senders[some]


def _length_that_pays(lengths: np.ndarray) -> int:
    """The longest length whose round is not much more than what is said in it; 1 for silence."""
    if not len(lengths):
        return 1
    for rows in np.sort(lengths)[::-1]:
        if rows * len(lengths) <= WASTE * np.minimum(lengths, rows).sum():
            return int(rows)
    return int(lengths.min())


def plan_exchange(parts: list[PartEdges], numbering: Numbering) -> Exchange:
    """Find every part's halo, and the rounds that bring it."""
    count = numbering.parts
    needed = halos(parts, numbering)
    bounds = np.arange(count + 1) * numbering.rows
    first_pq = np.array([np.searchsorted(positions, bounds) for positions in needed])
    next_pq, end_pq = first_pq[:, :-1].copy(), first_pq[:, 1:]
    rounds: list[Round] = []
    arrivals: list[list[np.ndarray]] = [[] for _ in parts]
    for messages in plan_rounds(end_pq - next_pq):
        rows_ps = np.full((count, messages.rows), numbering.rows, np.int32)
        arrived = dict.fromkeys(range(count), np.zeros(0, np.int64))
        for source, target in messages.pairs:
            start = next_pq[target, source]
            end = min(start + messages.rows, end_pq[target, source])
            arrived[target] = needed[target][start:end]
            rows_ps[source, : end - start] = arrived[target] - source * numbering.rows
            next_pq[target, source] = end
        rounds.append(Round(rows_ps, messages))
        for target, positions in arrived.items():
            arrivals[target].append(positions)
    return Exchange(tuple(rounds), arrivals)


def halos(parts: list[PartEdges], numbering: Numbering) -> list[np.ndarray]:
    """Positions, ascending, of the rows that each part needs of others."""
    return [_remote_senders(part.senders_e, p, numbering) for p, part in enumerate(parts)]


def _remote_senders(senders_e: np.ndarray, part: int, numbering: Numbering) -> np.ndarray:
    """Positions, ascending, of the senders of a part's edges that are not its own."""
    seen = np.zeros(numbering.parts * numbering.rows, bool)
    seen[senders_e] = True
    seen[part * numbering.rows : (part + 1) * numbering.rows] = False
    return np.flatnonzero(seen)


def stages(rounds: Sequence[Messages], capacity: int) -> list[slice]:
    """Runs of rounds that bring at most `capacity` rows together, or are a single round."""
    starts, held = [], capacity
    for number, messages in enumerate(rounds):
        if held + messages.rows > capacity:
            starts.append(number)
            held = 0
        held += messages.rows
    return [slice(*ends) for ends in pairwise([*starts, len(rounds)])]


@jax.custom_vjp
def fetch_all(rounds: Sequence[Round], *tables: jax.Array) -> tuple[jax.Array, ...]:
    """What arrives in some rounds, one after the other in one table.

    With its own derivative, which adds the gradients of all rounds up in place: jax would make a
    table of each round's and add those.
    """
    fetched = [fetch(each, *tables) for each in rounds]
    return tuple(jnp.concatenate(rows) for rows in zip(*fetched, strict=True))


def _fetch_forward(rounds: Sequence[Round], *tables: jax.Array) -> tuple[Any, Any]:
    return fetch_all(rounds, *tables), (rounds, [jnp.zeros_like(x) for x in tables])


def _fetch_backward(saved: Any, grads: tuple[jax.Array, ...]) -> tuple[Any, ...]:
    rounds, nothing = saved
    no_gradient = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), rounds)
    return no_gradient, *bring_all_back(rounds, nothing, grads)


fetch_all.defvjp(_fetch_forward, _fetch_backward)


def from_arrivals(
    edges: PartEdges, arrivals: Sequence[np.ndarray], rounds: Sequence[Messages]
) -> EdgeList:
    """The edges whose senders arrive in these rounds, by their place in what `fetch_all` gives."""
    nothing = np.zeros(0, np.int64)
    first = np.cumsum([0, *(messages.rows for messages in rounds)])
    places = [start + np.arange(len(a)) for start, a in zip(first, arrivals, strict=False)]
    positions, places = np.concatenate([nothing, *arrivals]), np.concatenate([nothing, *places])
    ascending = np.argsort(positions)
    positions = np.append(positions[ascending], -1)
    index_e = np.searchsorted(positions[:-1], edges.senders_e)
    found_e = positions[index_e] == edges.senders_e
    return edges.where(found_e).from_senders(places[ascending[index_e[found_e]]])


def fetch(each: Round, *tables: jax.Array) -> tuple[jax.Array, ...]:
    """Send rows of the tables and receive others': one message, however many tables."""
    flat = [x.reshape(x.shape[0], -1) for x in tables]  # see `side_by_side`
    chosen = [
        x.at[each.rows_s].get(mode="fill", fill_value=0, indices_are_sorted=True) for x in flat
    ]
    return apart(jax.lax.ppermute(side_by_side(chosen), NODE, each.messages.pairs), tables)


def bring_all_back(
    rounds: Sequence[Round], totals: Sequence[jax.Array], grads: Sequence[jax.Array]
) -> list[jax.Array]:
    """Send gradients of what `fetch_all` gave home, and add them to the totals there."""
    totals, start = list(totals), 0
    for each in rounds:
        end = start + each.messages.rows
        homewards = [(target, source) for source, target in each.messages.pairs]
        leaving = side_by_side([x[start:end] for x in grads])
        received = apart(jax.lax.ppermute(leaving, NODE, homewards), grads)
        for i, total in enumerate(totals):
            back = received[i].astype(total.dtype)
            totals[i] = total.at[each.rows_s].add(back, mode="drop", indices_are_sorted=True)
        start = end
    return totals


def side_by_side(tables: Sequence[jax.Array]) -> jax.Array:
    """One wide row a node: all heads of all tables.

    A TPU pads the last axis to 128: kept by head, a width of 16 would take eight times the memory.
    """
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in tables], axis=1)


def apart(rows_nf: jax.Array, tables: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Wide rows as tables that are shaped like these."""
    ends = np.cumsum([math.prod(x.shape[1:]) for x in tables])
    parts = jnp.split(rows_nf, ends[:-1], axis=1)
    return tuple(y.reshape(-1, *x.shape[1:]) for x, y in zip(tables, parts, strict=True))


def travelling(
    rounds: Sequence[Messages], parts: int, row_bytes: int, *, forward: int, again: int, back: int
) -> tuple[Transfer, ...]:
    """The rounds as transfers of the part that receives most.

    Rows are fetched `forward` times in the forward pass and `again` times after it, and gradients
    come back to who sent the rows `back` times.
    """
    heard_p: list[list[int]] = [[] for _ in range(parts)]
    told_p: list[list[int]] = [[] for _ in range(parts)]
    for each in rounds:
        for source, target in each.pairs:
            heard_p[target].append(each.rows)
            told_p[source].append(each.rows)
    if not any(each.pairs for each in rounds):  # supposed: everyone hears from everyone
        heard_p = told_p = [[each.rows for each in rounds]]
    fetches = forward + again
    busiest = max(
        range(len(heard_p)), key=lambda p: fetches * sum(heard_p[p]) + back * sum(told_p[p])
    )
    ways = ((heard_p, fetches, forward / fetches), (told_p, back, 0.0))
    return tuple(
        Transfer("collective-permute", NODE, rows * row_bytes, times * count, True, share)
        for rows_p, times, share in ways
        for rows, count in Counter(rows_p[busiest]).items()
    )

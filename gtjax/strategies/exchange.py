"""Which rows travel between which parts, and when: rounds in which each part hears from one other.

A part needs the rows of other parts that its edges start from, its *halo*. All devices run the same
program, so all messages of a round are as long as the longest of them: the rounds are matched such
that messages of similar length travel together, which costs far less than one all-to-all padded to
the longest of all. A round is a `ppermute`, and only pairs that have something to say take part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.partition import Cut, EvenCut
from gtjax.strategies.base import NODE, Transfer
from gtjax.strategies.numbering import Numbering
from gtjax.strategies.part_edges import PartEdges
from pallas_kernels.edges import EdgeList

Tree = Any

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
        from scipy.optimize import linear_sum_assignment  # slow to import

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


def exchange_of(
    halo_pq: np.ndarray,
    wanted: Callable[[int, int], np.ndarray],
    rows: int,
    parts: Sequence[int],
) -> Exchange:
    """The rounds that bring every part its halo, and what some parts send and receive in them.

    Args:
        halo_pq: How many rows part p needs of part q.
        wanted: The rows that a part needs of another, given both: positions, ascending. Asked for
            where one of the two is among `parts`.
        rows: Of every part.
        parts: The leading axis of what comes back.
    """
    place = {part: number for number, part in enumerate(parts)}
    next_pq = np.zeros_like(halo_pq)
    rounds: list[Round] = []
    arrivals: list[list[np.ndarray]] = [[] for _ in parts]
    for messages in plan_rounds(halo_pq):
        rows_ps = np.full((len(parts), messages.rows), rows, np.int32)
        arrived = [np.zeros(0, np.int64) for _ in parts]
        for source, target in messages.pairs:
            start = next_pq[target, source]
            end = next_pq[target, source] = min(start + messages.rows, halo_pq[target, source])
            if target in place or source in place:
                content = wanted(target, source)[start:end]
                if target in place:
                    arrived[place[target]] = content
                if source in place:
                    rows_ps[place[source], : end - start] = content - source * rows
        rounds.append(Round(rows_ps, messages))
        for number, positions in enumerate(arrived):
            arrivals[number].append(positions)
    return Exchange(tuple(rounds), arrivals)


def halos(parts: list[PartEdges], senders: Numbering) -> list[np.ndarray]:
    """Positions, ascending, of the rows that each part needs of others."""
    return [remote_senders(part.senders_e, p, senders) for p, part in enumerate(parts)]


def remote_senders(senders_e: np.ndarray, part: int, numbering: Numbering) -> np.ndarray:
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


def from_arrivals(
    edges: PartEdges, arrivals: Sequence[np.ndarray], rounds: Sequence[Messages]
) -> EdgeList:
    """The edges whose senders arrive in these rounds, by their place in what is fetched."""
    nothing = np.zeros(0, np.int64)
    first = np.cumsum([0, *(messages.rows for messages in rounds)])
    places = [start + np.arange(len(a)) for start, a in zip(first, arrivals, strict=False)]
    positions, places = np.concatenate([nothing, *arrivals]), np.concatenate([nothing, *places])
    ascending = np.argsort(positions)
    positions = np.append(positions[ascending], -1)
    index_e = np.searchsorted(positions[:-1], edges.senders_e)
    found_e = positions[index_e] == edges.senders_e
    return edges.where(found_e).from_senders(places[ascending[index_e[found_e]]])


def fetch_rounds(rounds: Sequence[Round], rows: Tree, zero: jax.Array | None = None) -> Tree:
    """What arrives in some rounds, one after the other: a table of each of the rows' tables.

    All tables of a type travel in one message. `zero` is 0, known only when fetching may begin.
    """
    tables, unpack = packed(rows)
    arrived: list[list[jax.Array]] = [[] for _ in tables]
    for each in rounds:
        rows_s = each.rows_s if zero is None else each.rows_s + zero
        for table, parts in zip(tables, arrived, strict=True):
            chosen = table.at[rows_s].get(mode="fill", fill_value=0, indices_are_sorted=True)
            parts.append(jax.lax.ppermute(chosen, NODE, each.messages.pairs))
    return unpack([jnp.concatenate(parts) for parts in arrived])


def bring_rounds_back(rounds: Sequence[Round], totals: Tree, grads: Tree) -> Tree:
    """Send gradients of what `fetch_rounds` gave home, and add them to the totals there."""
    leaving, unpack = packed(grads)
    totals, start = jax.tree.map(lambda x: x.astype(jnp.float32), totals), 0
    for each in rounds:
        end = start + each.messages.rows
        homewards = [(target, source) for source, target in each.messages.pairs]
        back = unpack([jax.lax.ppermute(x[start:end], NODE, homewards) for x in leaving])
        totals = jax.tree.map(
            lambda total, more, at=each.rows_s: total.at[at].add(
                more.astype(total.dtype), mode="drop", indices_are_sorted=True
            ),
            totals,
            back,
        )
        start = end
    return totals


def packed(rows: Tree) -> tuple[list[jax.Array], Callable[[list[jax.Array]], Tree]]:
    """One wide row a node for all tables of a type, and the way back, for any number of rows.

    A TPU pads the last axis to 128: kept by head, a width of 16 would take eight times the memory.
    """
    leaves, treedef = jax.tree.flatten(rows)
    kinds: dict[Any, list[int]] = {}
    for number, leaf in enumerate(leaves):
        kinds.setdefault(leaf.dtype, []).append(number)
    flat = [x.reshape(x.shape[0], -1) for x in leaves]
    wide = [jnp.concatenate([flat[i] for i in numbers], axis=1) for numbers in kinds.values()]

    def unpack(tables: list[jax.Array]) -> Tree:
        parts: list[Any] = [None] * len(leaves)
        for table, numbers in zip(tables, kinds.values(), strict=True):
            ends = np.cumsum([flat[i].shape[1] for i in numbers])
            for number, part in zip(numbers, jnp.split(table, ends[:-1], axis=1), strict=True):
                parts[number] = part.reshape(-1, *leaves[number].shape[1:])
        return treedef.unflatten(parts)

    return wide, unpack


def travelling(
    rounds: Sequence[Messages],
    parts: int,
    *,
    row_bytes: float,
    gradient_bytes: float,
    again: int = 0,
) -> tuple[Transfer, ...]:
    """The rounds as transfers of the part that receives most.

    Rows are fetched once in the forward pass and `again` times after it, and gradients come back
    to who sent the rows.
    """
    heard_p: list[list[int]] = [[] for _ in range(parts)]
    told_p: list[list[int]] = [[] for _ in range(parts)]
    for each in rounds:
        for source, target in each.pairs:
            heard_p[target].append(each.rows)
            told_p[source].append(each.rows)
    if not any(each.pairs for each in rounds):  # supposed: everyone hears from everyone
        heard_p = told_p = [[each.rows for each in rounds]]
    fetches = 1 + again
    busiest = max(
        range(len(heard_p)),
        key=lambda p: fetches * row_bytes * sum(heard_p[p]) + gradient_bytes * sum(told_p[p]),
    )
    ways = (
        (heard_p, row_bytes, fetches, 1 / fetches),
        (told_p, gradient_bytes, 1, 0.0),
    )
    return tuple(
        Transfer("collective-permute", NODE, rows * size, times * count, True, share)
        for rows_p, size, times, share in ways
        for rows, count in Counter(rows_p[busiest]).items()
        if size
    )

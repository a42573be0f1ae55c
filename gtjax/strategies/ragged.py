"""Halos in one message of exact sizes: `ragged_all_to_all`, which TPUs and GPUs have.

Each part sends every other just the rows that it needs, one after the other, however different
their numbers are; nothing is padded but the tables at both ends, to those of the part that sends,
and that receives, most. Choose it where parts differ so much in what they need of each other that
rounds (`exchange`), which pay for the longest message of each, move much more.

It is not the default where it could be. In the program that the compiler makes for a TPU nothing
else runs during a ragged exchange, while the messages of rounds travel during attention within the
part; and it saves little where the parts are balanced. Compiled for TPUs, and its numbers tested on
an emulation of the collective; never run on a chip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial as bind
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.partition import Cut
from gtjax.strategies.base import NODE, Transfer
from gtjax.strategies.exchange import Tree, packed


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ends:
    """A table in pieces, one for each part: where they begin here and there, and their lengths."""

    here_p: Any
    there_p: Any
    sizes_p: Any
    rows: int = field(metadata={"static": True})  # of the table, padding included


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ragged:
    """Rows that a part sends, target after target, and the pieces at both ends."""

    rows_s: Any  # one past the last row for padding
    sent: Ends
    received: Ends


def plan_ragged(needed: list[np.ndarray], rows: int) -> Ragged:
    """The exchange that brings every part its halo: `needed`, positions of the senders, ascending.

    `rows` are those of every part. All arrays have a leading axis of parts.
    """
    parts = len(needed)
    bounds = np.arange(parts + 1) * rows
    received_first_pq = np.array([np.searchsorted(positions, bounds) for positions in needed])
    sizes_pq = np.diff(received_first_pq, axis=1)
    sent_first_qp = np.zeros((parts, parts + 1), np.int64)
    np.cumsum(sizes_pq.T, axis=1, out=sent_first_qp[:, 1:])
    received_first_pq = received_first_pq[:, :-1]

    most_sent, most_received = (max(1, int(sizes_pq.sum(axis=a).max())) for a in (0, 1))
    rows_qs = np.full((parts, most_sent), rows, np.int32)
    for q in range(parts):
        for p, positions in enumerate(needed):
            start, size = received_first_pq[p, q], sizes_pq[p, q]
            first = sent_first_qp[q, p]
            rows_qs[q, first : first + size] = positions[start : start + size] - q * rows
    sent_first_qp = sent_first_qp[:, :-1]

    def ends(here: np.ndarray, there: np.ndarray, sizes: np.ndarray, most: int) -> Ends:
        here, there, sizes = (x.astype(np.int32) for x in (here, there, sizes))
        return Ends(here, there, sizes, most)

    return Ragged(
        rows_qs,
        ends(sent_first_qp, received_first_pq.T, sizes_pq.T, most_sent),
        ends(received_first_pq, sent_first_qp.T, sizes_pq, most_received),
    )


def fetch_ragged(ragged: Ragged, rows: Tree, zero: jax.Array | None = None) -> Tree:
    """The halo's rows of the tables: one message for all tables of a type."""
    rows_s = ragged.rows_s if zero is None else ragged.rows_s + zero
    tables, unpack = packed(rows)
    chosen = [x.at[rows_s].get(mode="fill", fill_value=0) for x in tables]
    return unpack([_trade(x, ragged.sent, ragged.received) for x in chosen])


def bring_ragged_back(ragged: Ragged, totals: Tree, grads: Tree) -> Tree:
    """Send gradients of what `fetch_ragged` gave home, and add them to the totals there."""
    leaving, unpack = packed(grads)
    back = unpack([_trade(x, ragged.received, ragged.sent) for x in leaving])
    return jax.tree.map(
        lambda total, more: total.astype(jnp.float32).at[ragged.rows_s].add(more, mode="drop"),
        totals,
        back,
    )


def _trade(rows_sf: jax.Array, sent: Ends, received: Ends) -> jax.Array:
    """Pieces to where they are wanted; places that no piece reaches are zero."""
    return ragged_all_to_all(
        rows_sf,
        jnp.zeros((received.rows, *rows_sf.shape[1:]), rows_sf.dtype),
        *(sent.here_p, sent.sizes_p, sent.there_p, received.sizes_p),
    )


ragged_all_to_all = bind(jax.lax.ragged_all_to_all, axis_name=NODE)


def travelling_at_once(
    cut: Cut, *, row_bytes: float, gradient_bytes: float
) -> tuple[Transfer, ...]:
    """Forward and back: what the part receives that receives most, there and here."""
    ways = ((cut.halo_p, row_bytes, 1.0), (cut.sent_p, gradient_bytes, 0.0))
    return tuple(
        Transfer(
            "ragged-all-to-all", NODE, int(rows_p.max()) * size, hideable=True, forward=forward
        )
        for rows_p, size, forward in ways
        if rows_p.any() and size
    )

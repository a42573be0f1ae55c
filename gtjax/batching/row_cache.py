"""Rows of features that are kept in memory, of a table in a file: which, and how often found.

Sampled batches ask for the same few nodes again and again, on graphs with hubs above all. A cache
keeps so many rows, scaled as the model reads them; the others are read from the file. Three ways to
choose them:

- `degree`: the rows that most edges start from, for good. Costs nothing while training. - `lru`:
the rows that were asked for last. Every miss takes the place of another row. - `scored`: starts as
`degree`. The score of a row falls by a share in every step that does not ask for it   and rises by
the same in one that does; every so many steps rows whose score is below the rate at   which others
were missed give way to those, the most missed first. After MassiveGNN (Sarkar, Ghosh and
Jannesari 2024), whose threshold is fixed and whose scores only fall.

The values that come out are the same whatever is kept. It takes 12 bytes a node beside the rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Policy = Literal["scored", "degree", "lru"]
DECAY = 0.01  # share by which a score moves in a step: it remembers about a hundred
PERIOD = 16  # steps between two looks at scores and misses


@dataclass
class CacheCounts:
    """What was asked of a cache."""

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0  # from the table

    @property
    def hit_rate(self) -> float:
        """Share of the rows that were asked for and found."""
        return self.hits / max(1, self.hits + self.misses)


@dataclass(eq=False)
class RowCache:
    """Keeps so many rows of a table; asked by several threads.

    table:     anything with rows by number, such as a memory-mapped array.
    change:    what is done to rows before they are kept and given out.
    degrees_n: how many edges start from each node; the highest are kept first.
    """

    table: Any
    capacity: int
    degrees_n: np.ndarray
    policy: Policy = "scored"
    change: Callable[[np.ndarray], np.ndarray] = lambda rows: rows
    counts: CacheCounts = field(default_factory=CacheCounts)

    def __post_init__(self) -> None:
        nodes = len(self.degrees_n)
        self.capacity = max(0, min(self.capacity, nodes))
        kept = np.argsort(-self.degrees_n, kind="stable")[: self.capacity]
        kept.sort()
        self._slot_n = np.full(nodes, -1, np.int32)
        self._slot_n[kept] = np.arange(len(kept))
        self._node_s, self._rows_sf = kept, self.change(self.table[kept])
        self._row_bytes = self.table[:1].nbytes
        self._score_s = np.ones(len(kept), np.float32)
        self._used_s = np.zeros(len(kept), np.int64)  # the last step that did
        self._missed_n = np.zeros(nodes if self.policy == "scored" else 0, np.float32)
        self._step = 0
        self._lock = threading.Lock()

    def rows(self, nodes: np.ndarray) -> np.ndarray:
        """Rows of distinct nodes."""
        with self._lock:
            slots = self._slot_n[nodes]
            found = slots >= 0
            hits, misses = slots[found], nodes[~found]
            out = np.empty((len(nodes), *self._rows_sf.shape[1:]), self._rows_sf.dtype)
            out[found] = self._rows_sf[hits]
            self._count(len(hits), len(misses))
            self._use(hits, misses)
        if len(misses):
            read = self.change(self.table[misses])
            out[~found] = read
            with self._lock:
                self._keep(misses, read)
        return out

    @property
    def nodes(self) -> np.ndarray:
        """Whose rows are kept."""
        return self._node_s

    def _count(self, hits: int, misses: int) -> None:
        self.counts.hits += hits
        self.counts.misses += misses
        self.counts.bytes_read += misses * self._row_bytes

    def _use(self, hits: np.ndarray, misses: np.ndarray) -> None:
        self._step += 1
        self._used_s[hits] = self._step
        if self.policy == "scored":
            self._score_s *= 1 - DECAY
            self._score_s[hits] += DECAY
            self._missed_n[misses] += DECAY

    def _keep(self, misses: np.ndarray, read: np.ndarray) -> None:
        if self.policy == "lru":
            some = misses[: self.capacity]
            there = self._slot_n[some] < 0  # another thread may have brought it meanwhile
            some, read = some[there], read[: len(there)][there]
            oldest = np.argpartition(self._used_s, len(some) - 1)[: len(some)]
            self._replace(oldest, some, read)
        elif self.policy == "scored" and self._step % PERIOD == 0:
            self._evict()

    def _evict(self) -> None:
        """Rows that are needed less often than others were missed give way to those."""
        missed = np.flatnonzero(self._missed_n > DECAY)  # once is chance
        missed = missed[self._slot_n[missed] < 0]
        rate = self._missed_n[missed]
        order = np.argsort(-rate, kind="stable")[: self.capacity]
        worst = np.argsort(self._score_s, kind="stable")[: len(order)]
        better = rate[order] > self._score_s[worst]
        slots, nodes = worst[better], missed[order][better]
        if len(nodes):
            self._missed_n[self._node_s[slots]] = self._score_s[
                slots
            ]  # what is known of them stays
            self._score_s[slots], self._missed_n[nodes] = rate[order][better], 0
            self._replace(slots, nodes, self.change(self.table[nodes]))
            self.counts.bytes_read += len(nodes) * self._row_bytes
        self._missed_n *= (1 - DECAY) ** PERIOD

    def _replace(self, slots: np.ndarray, nodes: np.ndarray, rows: np.ndarray) -> None:
        self._slot_n[self._node_s[slots]] = -1
        self._slot_n[nodes] = slots
        self._node_s[slots], self._rows_sf[slots] = nodes, rows
        self._used_s[slots] = self._step


def advised_rows(uses_n: np.ndarray, row_bytes: int, memory_bytes: int, share: float = 0.9) -> int:
    """How many rows to keep: those that find `share` of what is asked for, as far as they fit.

    uses_n: how often each node was asked for, in some batches that were drawn to look.
    """
    ordered = np.sort(uses_n)[::-1].cumsum()
    if not len(ordered) or not ordered[-1]:
        return 0
    wanted = int(np.searchsorted(ordered, share * ordered[-1])) + 1
    return min(wanted, int(memory_bytes // max(1, row_bytes)), len(uses_n))


def memory_bytes() -> int:
    """Memory of this machine; 8 GiB where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30

"""How many edges go between each two clusters, of a stream of edges; the lightest are forgotten.

A table by hashes where native code is there, sorts of all that is known in numpy, with the same
result: pairs are forgotten at the end of a chunk, down to the heaviest `most`, once there are
`FORGETS` times as many.
"""

from __future__ import annotations

import numpy as np

from gtjax.core.errors import UserError
from gtjax.partition.choices import lot
from gtjax.partition.label_propagation import WeightedChunks
from gtjax.partition.native import library

FORGETS = 2
FILLED = 0.7  # of a table, at most


def count_pairs(
    chunks: WeightedChunks, cluster_n: np.ndarray, count: int, most: int, *, native: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of different clusters as `receiver * count + sender`, ascending, and their weights."""
    limit = FORGETS * most
    if native and library() is not None:
        known = _Table(cluster_n, count)
    else:
        known = _Lists(cluster_n, count, limit)
    for receivers, senders, weights in chunks():
        if known.add(receivers, senders, weights) > limit:
            known.keep(*_heaviest(*known.pairs(), most))
    key_q, weight_q = _heaviest(*known.pairs(), most)
    order = np.argsort(key_q)
    return key_q[order], weight_q[order]


class _Table:
    """Pairs by hash, open addressing."""

    def __init__(self, cluster_n: np.ndarray, count: int):
        self._cluster_n, self._count = np.ascontiguousarray(cluster_n, np.int64), count
        self._clear(1 << 10)

    def add(self, receivers: np.ndarray, senders: np.ndarray, weights: np.ndarray) -> int:
        """Count the edges of a chunk; gives how many pairs there are."""
        functions = library()
        assert functions is not None
        if self._used + len(receivers) > FILLED * len(self._key_t):
            self._grow(self._used + len(receivers))
        edges = [np.ascontiguousarray(a, np.int64) for a in (receivers, senders, weights)]
        used = functions.count_pairs(
            *(array.ctypes.data for array in edges),
            *(len(receivers), len(self._cluster_n), self._cluster_n.ctypes.data, self._count),
            *(self._key_t.ctypes.data, self._weight_t.ctypes.data, len(self._key_t), self._used),
        )
        if used < 0:
            raise UserError(f"nodes of a chunk are in 0..{len(self._cluster_n) - 1}; found others.")
        self._used = used
        return used

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All of them."""
        there_t = self._key_t >= 0
        return self._key_t[there_t], self._weight_t[there_t]

    def keep(self, key_q: np.ndarray, weight_q: np.ndarray) -> None:
        """Hold these and no others."""
        self._clear(len(self._key_t))
        self._put(key_q, weight_q)

    def _grow(self, pairs: int) -> None:
        (key_q, weight_q), size = self.pairs(), len(self._key_t)
        while pairs > FILLED * size:
            size *= 2
        self._clear(size)
        self._put(key_q, weight_q)

    def _clear(self, size: int) -> None:
        self._key_t, self._weight_t = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        self._used = 0

    def _put(self, key_q: np.ndarray, weight_q: np.ndarray) -> None:
        functions = library()
        assert functions is not None
        table = (self._key_t.ctypes.data, self._weight_t.ctypes.data, len(self._key_t), self._used)
        known = (key_q.ctypes.data, weight_q.ctypes.data, len(key_q))
        self._used = functions.put_pairs(*known, *table)


class _Lists:
    """Pairs in lists, sorted and added up once they are more than `limit`."""

    def __init__(self, cluster_n: np.ndarray, count: int, limit: int):
        self._cluster_n, self._count, self._limit = cluster_n, count, limit
        self.keep(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def add(self, receivers: np.ndarray, senders: np.ndarray, weights: np.ndarray) -> int:
        """Count the edges of a chunk; gives how many pairs there are, or at most as many."""
        to_e, from_e = self._cluster_n[receivers], self._cluster_n[senders]
        crosses_e = to_e != from_e
        self._keys.append(to_e[crosses_e] * self._count + from_e[crosses_e])
        self._weights.append(weights[crosses_e])
        self._size += len(self._keys[-1])
        if self._size > self._limit:
            self.keep(*self.pairs())
        return self._size

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """All of them."""
        key_q, inverse = np.unique(np.concatenate(self._keys), return_inverse=True)
        weight_q = np.bincount(inverse, np.concatenate(self._weights), len(key_q))
        return key_q, weight_q.astype(np.int64)

    def keep(self, key_q: np.ndarray, weight_q: np.ndarray) -> None:
        """Hold these and no others."""
        self._keys, self._weights, self._size = [key_q], [weight_q], len(key_q)


def _heaviest(key_q: np.ndarray, weight_q: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Of equal weights some by lot, whatever the order."""
    if len(key_q) <= most:
        return key_q, weight_q
    score_q = weight_q + 0.5 * lot(np.uint64(0), key_q)
    chosen_q = score_q >= np.partition(score_q, len(score_q) - most)[len(score_q) - most]
    return key_q[chosen_q], weight_q[chosen_q]

"""Edges as 64-bit keys that sort by receiver, then by sender.

    bits 63..32 receiver   bits 31..1 sender   bit 0: whether the edge is only a candidate

A candidate is an edge that is wanted only if the data does not hold it: the reverse of an edge, or
a self-loop. In sorted order it stands right behind the edges of the data with the same ends, so
that one look decides. That gives what `Graph.symmetrised` and `Graph.with_self_loops` give.
"""

from __future__ import annotations

import numpy as np

_RECEIVER, _ONE = np.uint64(32), np.uint64(1)
_SENDERS = np.uint64(2**31 - 1)


def keys_of(senders_e: np.ndarray, receivers_e: np.ndarray, *, candidate: bool) -> np.ndarray:
    """The keys of edges."""
    keys = receivers_e.astype(np.uint64)
    keys <<= _RECEIVER
    senders = senders_e.astype(np.uint64)
    senders <<= _ONE
    keys |= senders
    if candidate:
        keys |= _ONE
    return keys


def receivers_of(keys: np.ndarray) -> np.ndarray:
    """The receivers, int64."""
    return (keys >> _RECEIVER).view(np.int64)


def senders_of(keys: np.ndarray) -> np.ndarray:
    """The senders, int64."""
    return ((keys >> _ONE) & _SENDERS).view(np.int64)


def is_candidate(keys: np.ndarray) -> np.ndarray:
    """Whether each is a candidate."""
    return (keys & _ONE).astype(bool)


def first_of_receiver(receivers: np.ndarray) -> np.ndarray:
    """The smallest key of receivers."""
    return receivers.astype(np.uint64) << _RECEIVER


def wanted(keys: np.ndarray, *, distinct: bool) -> np.ndarray:
    """Which of the sorted keys stay: candidates only where the data has no edge with these ends.

    distinct: of several edges with the same ends only the first stays.
    """
    pairs = keys >> _ONE
    starts_e = np.ones(len(keys), bool)
    np.not_equal(pairs[1:], pairs[:-1], out=starts_e[1:])
    del pairs
    if distinct:
        return starts_e
    candidate_e = is_candidate(keys)
    # Candidates whose pair begins with an edge of the data are not wanted.
    if not (candidate_e[1:] & ~starts_e[1:] & ~candidate_e[:-1]).any():
        return np.ones(len(keys), bool)
    starts = np.flatnonzero(starts_e)
    in_data_e = np.repeat(~candidate_e[starts], np.diff(starts, append=len(keys)))
    return ~(candidate_e & in_data_e)

"""The label that each node would join: the one that most of its neighbours carry, and has room.

By native code for nodes whose edges stand in a row in a chunk, on all cores, and in numpy from
sorted votes for the others, and where there is no native code: both with the same result.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gtjax.core.errors import UserError
from gtjax.partition.labels import LITTLE, Labels, starts_of_runs
from gtjax.partition.native import library

THREADED_EDGES = 1 << 16  # of a chunk, from which on several threads pay


class Chunk(NamedTuple):
    """Some edges."""

    receivers: np.ndarray
    senders: np.ndarray
    weights: np.ndarray


class Votes(NamedTuple):
    """How much of a node's edges come from each label; sorted by node, then label."""

    node_v: np.ndarray
    label_v: np.ndarray
    weight_v: np.ndarray

    def where(self, keep_v: np.ndarray) -> Votes:
        """The votes that a mask keeps."""
        return Votes(*(array[keep_v] for array in self))


class Choices(NamedTuple):
    """The strongest label with room for each of some nodes, in the order of their numbers."""

    node_d: np.ndarray
    label_d: np.ndarray  # -1 where none has room
    best_d: np.ndarray  # its weight, and a lot below 0.5; -1 where none has room
    own_d: np.ndarray  # weight of the label that the node has


def choices_of_votes(votes: Votes, labels: Labels, lots: np.uint64) -> Choices:
    """Of nodes whose votes are all there."""
    starts = starts_of_runs(votes.node_v)
    node_d = votes.node_v[starts]
    if not len(node_d):
        return Choices(node_d, node_d, np.zeros(0), np.zeros(0))
    number_v = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(votes.node_v)))
    is_own_v = votes.label_v == labels.label_n[votes.node_v]
    own_d = np.zeros(len(node_d))
    own_d[number_v[is_own_v]] = votes.weight_v[is_own_v]
    # The strongest label with room; equals are decided by lot, or the lowest number would grow.
    open_v = ~is_own_v
    open_v[open_v] = labels.fits(votes.node_v[open_v], votes.label_v[open_v])
    score_v = np.where(open_v, votes.weight_v + lot(lots, votes.node_v, votes.label_v), -1.0)
    best_d = np.maximum.reduceat(score_v, starts)
    label_d = np.full(len(node_d), -1, np.int64)
    is_best_v = open_v & (score_v == best_d[number_v])
    label_d[number_v[is_best_v]] = votes.label_v[is_best_v]
    return Choices(node_d, label_d, best_d, own_d)


def lot(lots: np.uint64, *keys: np.ndarray) -> np.ndarray:
    """In [0, 0.5), by these numbers: the same whatever the order and the chunks."""
    hash_v = np.broadcast_to(lots, keys[0].shape)
    for key_v in keys:
        hash_v = _mixed(hash_v + np.uint64(0x9E3779B97F4A7C15) * key_v.astype(np.uint64))
    return (hash_v >> np.uint64(11)) * 2.0**-54


def _mixed(x: np.ndarray) -> np.ndarray:
    """Splitmix64's finaliser (Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def choices_of_rows(
    chunk: Chunk, degree_n: np.ndarray, labels: Labels, lots: np.uint64
) -> tuple[Choices, Chunk]:
    """By native code, of nodes whose edges stand in a row in the chunk; and all other edges."""
    size = len(chunk[0])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = cores or 1 if size >= THREADED_EDGES else 1
    bounds = [_start_of_row(chunk[0], size * number // count) for number in range(count + 1)]
    parts = [Chunk(*(array[a:b] for array in chunk)) for a, b in pairwise(bounds)]
    if count == 1:
        choices, rest = _choices_of_part(chunk, degree_n, labels, lots)
        return _sorted(choices), rest
    with ThreadPoolExecutor(count) as pool:
        found = [*pool.map(lambda part: _choices_of_part(part, degree_n, labels, lots), parts)]
    choices = Choices(*map(np.concatenate, zip(*(own for own, _ in found), strict=True)))
    rest = Chunk(*map(np.concatenate, zip(*(others for _, others in found), strict=True)))
    return _sorted(choices), rest


def _start_of_row(receivers: np.ndarray, near: int) -> int:
    """Where a row begins: at this place, or the next one where the receiver is another."""
    if not 0 < near < len(receivers):
        return near
    differs = receivers[near:] != receivers[near - 1]
    return near + (int(differs.argmax()) if differs.any() else len(differs))


def _choices_of_part(
    chunk: Chunk, degree_n: np.ndarray, labels: Labels, lots: np.uint64
) -> tuple[Choices, Chunk]:
    functions = library()
    assert functions is not None
    edges = [np.ascontiguousarray(array, np.int64) for array in chunk]
    arrays = [degree_n, labels.label_n, labels.load_lc, labels.weight_nc, labels.capacity_c]
    kinds = [np.int64, np.int64, *[np.float64] * 3]
    arrays = [np.ascontiguousarray(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
    degree, label, load, weight, capacity = (array.ctypes.data for array in arrays)
    size = len(edges[0])
    most = min(size, len(degree_n))
    out = Choices(*(np.empty(most, kind) for kind in (np.int64, np.int64, float, float)))
    rest_e, num_rest = np.empty(size, np.int64), np.zeros(1, np.int64)
    found = functions.choose_labels(
        *(array.ctypes.data for array in edges),
        *(size, len(degree_n), degree, label, labels.count, load, weight, capacity),
        *(len(labels.capacity_c), LITTLE, int(lots)),
        *(array.ctypes.data for array in (*out, rest_e, num_rest)),
    )
    if found < 0:
        raise UserError(f"nodes of a chunk are in 0..{len(degree_n) - 1}; found others.")
    rest_e = rest_e[: num_rest[0]]
    return Choices(*(a[:found] for a in out)), Chunk(*(array[rest_e] for array in edges))


def _sorted(choices: Choices) -> Choices:
    if (np.diff(choices.node_d) > 0).all():
        return choices
    order = np.argsort(choices.node_d)
    return Choices(*(array[order] for array in choices))


def joined(first: Choices | None, second: Choices) -> Choices:
    """Both, in the order of the nodes."""
    if first is None:
        return second
    return _sorted(Choices(*map(np.concatenate, zip(first, second, strict=True))))

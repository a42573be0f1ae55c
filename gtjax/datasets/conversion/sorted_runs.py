"""External sort: sorted runs on disk, and the pieces of all of them between two splitters.

A run is a file of 64-bit keys in ascending order, small enough to have been sorted in memory. Every
so many keys one is kept as a sample. Splitters are chosen among the samples of all runs such that
the keys between two of them are few enough to be sorted in memory again, whatever their
distribution. Then the pieces between two neighbouring splitters, one of each run, are read and
sorted together, and what comes out is the next stretch of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

SAMPLES = 4096  # of each run


def write_keys(path: Path, keys: np.ndarray) -> None:
    """Write a run, whose keys are sorted."""
    with path.open("wb") as stream:
        stream.write(keys.view(np.uint8).data)


def map_keys(path: Path) -> np.ndarray:
    """The keys of a run, mapped."""
    if not path.stat().st_size:
        return np.zeros(0, np.uint64)
    return np.memmap(path, np.uint64, "r").view(np.ndarray)


def sampled(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some of the keys of a run, evenly spaced, and how many keys each of them stands for."""
    stride = max(1, -(-len(keys) // SAMPLES))
    samples = np.array(keys[::stride])
    return samples, np.full(len(samples), stride, np.int64)


def splitters(columns: Sequence[np.ndarray], weights: np.ndarray, most: int) -> list[np.ndarray]:
    """Those of the samples of all runs to split at, in ascending order, column by column.

    Samples compare by the first column, then by the next. Between two splitters stand about `most`
    keys: at most as many more as one sample of each run stands for.
    """
    order = np.lexsort(tuple(reversed(columns)))
    full = np.cumsum(weights[order]) // most
    chosen = order[np.flatnonzero(np.diff(full, prepend=0))]
    return [column[chosen] for column in columns]


def read_piece(path: Path, start: int, end: int, kind: type = np.uint64) -> np.ndarray:
    """Some of what a file holds."""
    size = np.dtype(kind).itemsize
    return np.fromfile(path, kind, end - start, offset=start * size)

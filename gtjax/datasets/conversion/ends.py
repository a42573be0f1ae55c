"""From the ids at the ends of edges to numbers of nodes.

| class | ids | numbers |
|---|---|---|
| `Numbered` | are the numbers | the same, checked to be in range |
| `AsTheyAre` | whole numbers from 0 to 2^31 - 1 | the same for now; later those of `Present` |
| `KnownIds` | any integers | found in the sorted list of all ids |

Numbering in ascending order keeps the order of ids, so edges can be sorted by their ids before it
is known which ids occur, and numbered afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gtjax.datasets.conversion.edge_source import check_rows

MOST_NODES = 2**31  # a key holds both ends and one more bit
_BLOCK = 1 << 24


class WideIdsError(Exception):
    """Ids that do not fit a key as they are."""


class Numbered:
    """Ids that are the numbers of nodes."""

    def __init__(self, num_nodes: int):
        self._count = num_nodes

    def numbers(self, ids: np.ndarray, field: str, name_row: Callable[[int], str]) -> np.ndarray:
        """The numbers of the nodes with these ids."""
        bad_e = (ids < 0) | (ids >= self._count)
        check_rows(bad_e, field, f"node numbers are in 0..{self._count - 1}", ids, name_row)
        return ids


class AsTheyAre:
    """Ids of nodes that are not known before the edges are; notes which occur."""

    def __init__(self, path: Path):
        """`path` holds a byte for every possible id, of which the disk keeps only what is used."""
        with path.open("ab") as stream:
            stream.truncate(MOST_NODES)
        self._present = np.memmap(path, np.uint8, "r+", shape=(MOST_NODES,))

    def numbers(self, ids: np.ndarray, field: str, name_row: Callable[[int], str]) -> np.ndarray:
        """The ids themselves."""
        if len(ids) and (ids.min() < 0 or ids.max() >= MOST_NODES):
            raise WideIdsError
        self.note(ids)
        return ids

    def note(self, ids: np.ndarray) -> None:
        """These ids occur."""
        self._present[ids] = 1

    def flush(self) -> None:
        """Return once all that was noted is on the disk."""
        self._present.flush()


class KnownIds:
    """Integers, found in the list of all of them."""

    def __init__(self, sorted_ids: np.ndarray, number_of: np.ndarray | None):
        """`number_of` has the number of each of the sorted ids; None: numbered in order."""
        self._ids, self._number_of = sorted_ids, number_of

    def numbers(self, ids: np.ndarray, field: str, name_row: Callable[[int], str]) -> np.ndarray:
        """The numbers of the nodes with these ids."""
        found = np.searchsorted(self._ids, ids)
        found[found == len(self._ids)] = 0
        bad_e = self._ids[found] != ids
        check_rows(bad_e, field, "every edge ends at a node of the table", ids, name_row)
        return found if self._number_of is None else self._number_of[found]


class Present:
    """Numbers, in ascending order, of the ids that occur, after `AsTheyAre` has seen all edges."""

    def __init__(self, work: Path, span: int, num_nodes: int):
        """`span` is the largest id + 1."""
        self.span, self.num_nodes = span, num_nodes
        self._present = np.memmap(work / "present.bin", np.uint8, "r", shape=(MOST_NODES,))
        self._rank = None
        if num_nodes != span:
            self._rank = np.memmap(work / "rank.bin", np.int32, "w+", shape=(span,))
            before = 0
            for start in range(0, span, _BLOCK):
                there = np.cumsum(self._present[start : min(start + _BLOCK, span)], dtype=np.int64)
                self._rank[start : start + _BLOCK] = there + (before - 1)
                before += int(there[-1])

    def ids(self, start: int, end: int) -> np.ndarray:
        """Those that occur in a range of ids."""
        return np.flatnonzero(self._present[start : min(end, self.span)]) + start

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of ids that occur."""
        return ids if self._rank is None else self._rank[ids]


class AllOf:
    """Numbers that are given already: every node is there."""

    def __init__(self, num_nodes: int):
        self.span = self.num_nodes = num_nodes

    def ids(self, start: int, end: int) -> np.ndarray:
        """Those in a range."""
        return np.arange(start, min(end, self.span))

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """The same."""
        return ids


def count_present(work: Path, span: int) -> int:
    """How many ids below `span` occur."""
    present = np.memmap(work / "present.bin", np.uint8, "r", shape=(MOST_NODES,))
    blocks = (present[start : min(start + _BLOCK, span)] for start in range(0, span, _BLOCK))
    return sum(int(np.count_nonzero(block)) for block in blocks)

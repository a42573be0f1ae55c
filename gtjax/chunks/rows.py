"""Rows of all nodes or edges, read a stretch or a list at a time: in memory, in files, or scaled.

What a step computes is kept in `Scratch`: plain arrays where they fit into the memory that was
given, and else files that are mapped, so that the operating system decides which pages are in
memory and none of them is anonymous. Files are used again for arrays of the same size; they have no
name, and are gone when nobody uses them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gtjax.core.errors import UserError

ALIGNMENT = 64  # bytes: where jax can use an array of the host without a copy


class Rows(Protocol):
    """Rows `[count, width]` of one type."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and numbers in each."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers."""
        ...

    def stretch(self, start: int, end: int) -> np.ndarray:
        """Rows that stand next to each other."""
        ...

    def take(self, index: np.ndarray, into: np.ndarray) -> None:
        """Rows by number, which ascend, into the first rows of an array."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether they are one array, in memory or mapped, that a kernel can read as it is."""
        ...

    def whole(self) -> np.ndarray:
        """All of them as one array, in memory or mapped."""
        ...


class Traffic:
    """Bytes of rows that were read and written; in place, all rows of a pass count once."""

    def __init__(self) -> None:
        self.read = self.written = 0


class ArrayRows:
    """Rows of an array, which may be a mapped file."""

    def __init__(self, array: np.ndarray, traffic: Traffic | None = None):
        self.array = array.reshape(len(array), -1)
        self._traffic = traffic or Traffic()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and numbers in each."""
        return self.array.shape[0], self.array.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Of the numbers."""
        return self.array.dtype

    def stretch(self, start: int, end: int) -> np.ndarray:
        """A view."""
        found = self.array[start:end]
        self._traffic.read += found.nbytes
        return found

    def take(self, index: np.ndarray, into: np.ndarray) -> None:
        """By number, without a copy in between."""
        rows = into[: len(index)]
        np.take(self.array, index, axis=0, out=rows, mode="clip")
        self._traffic.read += rows.nbytes

    @property
    def in_place(self) -> bool:
        """Unless it has gaps."""
        return self.array.flags.c_contiguous and self.array.ctypes.data % ALIGNMENT == 0

    def whole(self) -> np.ndarray:
        """The array."""
        self._traffic.read += self.array.nbytes
        return self.array

    def write(self, start: int, rows: Any, *, add: bool) -> None:
        """Set a stretch of rows, or add to it."""
        rows = np.asarray(rows)
        target = self.array[start : start + len(rows)]
        self._traffic.written += target.nbytes
        if add:
            self._traffic.read += target.nbytes
            np.add(target, rows, out=target)
        else:
            np.copyto(target, rows)


class ChangedRows:
    """Rows of a table that is read by `table[stretch or numbers]`, as `change` makes them."""

    in_place = False

    def __init__(self, table: Any, change: Callable[[np.ndarray], np.ndarray]):
        self._table, self._change = table, change
        first = self.stretch(0, min(1, table.shape[0]))
        self.shape, self.dtype = (int(table.shape[0]), first.shape[1]), first.dtype

    def stretch(self, start: int, end: int) -> np.ndarray:
        """Read and changed."""
        rows = np.asarray(self._change(self._table[start:end]))
        return rows.reshape(len(rows), -1)

    def take(self, index: np.ndarray, into: np.ndarray) -> None:
        """Read by number and changed."""
        rows = np.asarray(self._change(self._table[index]))
        into[: len(index)] = rows.reshape(len(rows), -1)

    def whole(self) -> np.ndarray:
        """All of them, made now."""
        return self.stretch(0, self.shape[0])


class PermutedRows:
    """Rows of others in another order: row i is `order[i]` of them."""

    in_place = False

    def __init__(self, rows: ArrayRows, order: np.ndarray):
        self._rows, self._order = rows, order
        self.shape, self.dtype = rows.shape, rows.dtype

    def stretch(self, start: int, end: int) -> np.ndarray:
        """By number."""
        return self._rows.array[self._order[start:end]]

    def take(self, index: np.ndarray, into: np.ndarray) -> None:
        """By number of the number."""
        self._rows.take(self._order[index], into)

    def whole(self) -> np.ndarray:
        """All of them, made now."""
        return self.stretch(0, self.shape[0])


class CountedRows:
    """The numbers of the rows themselves, as ids of nodes are."""

    in_place = False

    def __init__(self, count: int):
        self.shape, self.dtype = (count, 1), np.dtype(np.uint32)

    def stretch(self, start: int, end: int) -> np.ndarray:
        """Counted."""
        return np.arange(start, end, dtype=np.uint32)[:, None]

    def take(self, index: np.ndarray, into: np.ndarray) -> None:
        """The numbers themselves."""
        into[: len(index), 0] = index

    def whole(self) -> np.ndarray:
        """All of them, made now."""
        return self.stretch(0, self.shape[0])


class Scratch:
    """Where arrays of a step are kept: `bytes_in_memory` at most in memory, the rest in files."""

    def __init__(self, folder: Path | None, bytes_in_memory: float):
        self._left, self._folder = bytes_in_memory, folder
        self._free: dict[int, list[np.ndarray]] = {}
        self.traffic = Traffic()
        self.file_bytes = 0
        self.memory_bytes = 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array whose numbers are not set."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self._free.get(size):
            return self._free[size].pop().view(dtype).reshape(shape)
        if size <= self._left or not size:
            self._left -= size
            self.memory_bytes += size
            return aligned(size).view(dtype).reshape(shape)
        return self._mapped(size).view(dtype).reshape(shape)

    def rows(self, count: int, width: int, dtype: Any) -> ArrayRows:
        """Rows whose numbers are not set."""
        return ArrayRows(self.array((count, width), dtype), self.traffic)

    def free(self, array: np.ndarray) -> None:
        """Let another array of this size have the place."""
        flat = array.reshape(-1).view(np.uint8)
        self._free.setdefault(flat.nbytes, []).append(flat)

    def _mapped(self, size: int) -> np.ndarray:
        self.file_bytes += size
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            # It has no name, and is gone with its mapping, however the process ends.
            with tempfile.TemporaryFile(dir=self._folder) as file:
                return np.asarray(np.memmap(file, np.uint8, mode="w+", shape=(size,)))
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise UserError(
                f"--batching chunks keeps rows in files: cannot make one of {size / 2**30:.3g} GiB "
                f"in {where} ({error.strerror}). --scratch names another folder; --memory says how "
                f"much need not be in files."
            ) from error


def aligned(size: int) -> np.ndarray:
    """Bytes that start where jax can use them without a copy."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]

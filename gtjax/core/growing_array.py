"""A .npy file that grows at its end, for arrays that are never in memory as a whole.

The header has a fixed size and says how many rows there are once `finish` was called; before that
the file is of no use to numpy. After a crash one goes on from a number of rows that was known to
be safely written, and forgets what came behind them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

HEADER_BYTES = 128


class GrowingArray:
    """Rows of one type and shape, appended to a file."""

    def __init__(self, path: Path, dtype: Any, row_shape: tuple[int, ...] = (), rows: int = 0):
        """Start a new file, or go on behind `rows` rows of one that is there."""
        self.path, self.dtype, self.row_shape = path, np.dtype(dtype), tuple(row_shape)
        self.rows = rows
        self._stream = path.open("r+b" if rows else "w+b")
        self._stream.truncate(HEADER_BYTES + rows * self.row_bytes)
        self._stream.seek(0, os.SEEK_END)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.row_shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all rows so far."""
        return (self.rows, *self.row_shape)

    def append(self, values: np.ndarray) -> None:
        """Write rows behind the others; they may still be in a buffer afterwards."""
        if values.shape[1:] != self.row_shape:
            raise ValueError(f"rows of {self.path.name} are {self.row_shape}; found {values.shape}")
        values = np.ascontiguousarray(values, self.dtype)
        if values.size:
            self._stream.write(values.reshape(-1).view(np.uint8).data)
        self.rows += len(values)

    def flush(self) -> None:
        """Leave nothing in a buffer of this process."""
        self._stream.flush()

    def sync(self) -> None:
        """Return once all that was flushed is on the disk; may run in another thread."""
        os.fsync(self._stream.fileno())

    def finish(self) -> None:
        """Write the header, after which the file is an ordinary .npy file, and close it."""
        self._stream.seek(0)
        self._stream.write(_header(self.dtype, self.shape))
        self.flush()
        self.sync()
        self._stream.close()

    def close(self) -> None:
        """Close the file without finishing it."""
        self._stream.close()


def flushed(files: Iterable[GrowingArray]) -> list[Callable[[], None]]:
    """Flush files, and give what waits until their rows so far are on the disk."""
    for file in files:
        file.flush()
    return [file.sync for file in files]


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """Version 1.0 of the format, padded to its fixed size."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    room = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + room.to_bytes(2, "little") + f"{text:<{room - 1}}\n".encode()

"""How fast a disk reads and writes large files, past the page cache.

Written in blocks and synced; read after the system was told to drop the pages. A file of some
hundred megabytes says enough: what is priced are gigabytes in order, not small files.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK = 1 << 23  # bytes
SIZE = 1 << 28


@dataclass(frozen=True)
class Disk:
    """Bytes a second of large files."""

    read: float
    write: float


# Assumed where nothing was measured: a solid-state disk of a rented machine, on the slow side.
USUAL = Disk(read=1.0e9, write=0.5e9)


def measured_disk(folder: Path | None = None, size: int = SIZE) -> Disk:
    """The disk that a folder is on; by default that of temporary files."""
    block = np.random.default_rng(0).integers(0, 256, BLOCK, np.uint8).tobytes()
    count = max(1, size // BLOCK)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        started = time.perf_counter()
        for _ in range(count):
            file.write(block)
        os.fsync(file.fileno())
        written = time.perf_counter() - started
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        into = bytearray(BLOCK)
        started = time.perf_counter()
        while file.readinto(into):
            pass
        read = time.perf_counter() - started
    return Disk(count * BLOCK / max(read, 1e-9), count * BLOCK / max(written, 1e-9))

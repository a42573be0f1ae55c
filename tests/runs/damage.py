"""What can happen to the files of a folder, one harm at a time, each undone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np


@contextmanager
def changed(path: Path, content: bytes | None) -> Iterator[None]:
    """The file with other content, or without the file."""
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def files_in(folder: Path) -> list[Path]:
    """All files, in an order that does not depend on the random names orbax gives some."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: (path.parent, path.stat().st_size, path.read_bytes()))


def removals(folder: Path) -> Iterator[Path]:
    """Every file removed."""
    for path in files_in(folder):
        with changed(path, None):
            yield path


def truncations(folder: Path) -> Iterator[Path]:
    """Every file cut off at its start, middle and end."""
    for path in files_in(folder):
        content = path.read_bytes()
        for length in sorted({0, 1, len(content) // 2, len(content) - 1}):
            if 0 <= length < len(content):
                with changed(path, content[:length]):
                    yield path


def bit_flips(folder: Path, count: int, seed: int) -> Iterator[Path]:
    """Single bits flipped, anywhere in the folder, large files as likely as small ones."""
    rng = np.random.default_rng(seed)
    paths = [path for path in files_in(folder) if path.stat().st_size]
    for _ in range(count):
        path = paths[rng.integers(len(paths))]
        content = bytearray(path.read_bytes())
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        with changed(path, bytes(content)):
            yield path

"""Encodings by name, kept on disk: they cost up to minutes and depend on the edges alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gtjax.graph.errors import UserError
from gtjax.graph.graph import Graph
from gtjax.graph.positional.laplacian_eigenvectors import laplacian
from gtjax.graph.positional.progress import Progress, ignore_progress
from gtjax.graph.positional.random_walks import random_walk
from gtjax.graph.user_cache import user_cache

ENCODINGS: dict[str, Callable[..., np.ndarray]] = {
    "random_walk": random_walk,
    "laplacian": laplacian,
}

ALGORITHM_VERSION = 1
"""Part of every file's name: raise it when an encoding comes out differently than before."""


def encode(
    graph: Graph,
    kind: str,
    size: int,
    cache_dir: Path | None = None,
    *,
    progress: Progress | None = None,
) -> np.ndarray:
    """The encoding `kind` of width `size`, float32 [N, size], from disk if it is there.

    cache_dir: folder of the files; by default "positional" in the folder that the environment
        variable GTJAX_CACHE_DIR names, or in the user's cache folder.
    progress:  called with the fraction done and a message while it computes.
    """
    if kind not in ENCODINGS:
        raise UserError(
            f"a positional encoding is one of {', '.join(ENCODINGS)}; found {kind!r}. Choose one."
        )
    if size < 1:
        raise UserError(f"a positional encoding has at least 1 column; found {size}. Raise size.")
    folder = default_cache_dir() if cache_dir is None else Path(cache_dir)
    file = folder / f"{graph.topology_fingerprint}-{kind}-{size}-v{ALGORITHM_VERSION}.npy"
    cached = _load(file, (graph.num_nodes, size))
    if cached is not None:
        return cached
    result = ENCODINGS[kind](graph, size, progress=progress or ignore_progress)
    with contextlib.suppress(OSError):  # a full or read-only disk costs time later, not the result
        _save(file, result)
    return result


def default_cache_dir() -> Path:
    """Where encodings are kept unless the caller says otherwise."""
    return user_cache() / "positional"


def _load(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """What the file holds, or None if it is absent or not what `_save` would have written."""
    try:
        # Mapped first, so that a header that promises terabytes is found out before memory is.
        mapped = np.load(file, mmap_mode="r", allow_pickle=False)
        if mapped.shape != shape or mapped.dtype != np.float32:
            return None
        array = np.array(mapped)
    except Exception:  # whatever is wrong with a cache, the remedy is to compute again
        return None
    return array if np.isfinite(array).all() else None


def _save(file: Path, array: np.ndarray) -> None:
    """Write so that no reader, in whatever process, ever sees half a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.save(stream, array, allow_pickle=False)
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

"""Encodings by name, kept on disk: they cost up to minutes and depend on the edges alone."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderFormat
from gtjax.core.progress import Progress, ignore_progress
from gtjax.core.user_cache import user_cache
from gtjax.graph.graph import Graph
from gtjax.graph.positional.laplacian_eigenvectors import laplacian
from gtjax.graph.positional.random_walks import random_walk

ENCODINGS: dict[str, Callable[..., np.ndarray]] = {
    "random_walk": random_walk,
    "laplacian": laplacian,
}

ALGORITHM_VERSION = 1
"""Part of every folder's name: raise it when an encoding comes out differently than before."""


FILE = "encoding.npy"
FORMAT = FolderFormat(
    name="gtjax positional encoding",
    version=1,
    manifest="encoding.json",
    remedy="Remove {folder}: it is computed again.",
)


def encode(
    graph: Graph,
    kind: str,
    size: int,
    cache_dir: Path | None = None,
    *,
    progress: Progress | None = None,
) -> np.ndarray:
    """The encoding `kind` of width `size`, float32 [N, size], from disk if it is there.

    cache_dir: where encodings are kept; by default "positional" in the folder that the environment
        variable GTJAX_CACHE_DIR names, or in the user's cache folder.
    progress:  called with the fraction done and a message while it computes.
    """
    if kind not in ENCODINGS:
        raise UserError(
            f"a positional encoding is one of {', '.join(ENCODINGS)}; found {kind!r}. Choose one."
        )
    if size < 1:
        raise UserError(f"a positional encoding has at least 1 column; found {size}. Raise size.")
    cache = default_cache_dir() if cache_dir is None else Path(cache_dir)
    folder = cache / f"{graph.topology_fingerprint}-{kind}-{size}-v{ALGORITHM_VERSION}"
    cached = _load(folder, (graph.num_nodes, size))
    if cached is not None:
        return cached
    result = ENCODINGS[kind](graph, size, progress=progress or ignore_progress)
    _save(folder, result)
    return result


def default_cache_dir() -> Path:
    """Where encodings are kept unless the caller says otherwise."""
    return user_cache() / "positional"


def _load(folder: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """What the folder holds, or None if it is absent or not what `_save` would have written."""
    if not folder.is_dir():
        return None
    try:
        return np.array(FORMAT.open(folder).array(FILE, shape, np.dtype(np.float32)))
    except UserError:  # whatever is wrong with a cache, the remedy is to compute again
        shutil.rmtree(folder, ignore_errors=True)
        return None


def _save(folder: Path, array: np.ndarray) -> None:
    """Keep an encoding, unless another process did so meanwhile or the disk does not allow it.

    That costs time later, and not the result.
    """
    with contextlib.suppress(UserError, OSError), FORMAT.written(folder) as to:
        to.array(FILE, array)

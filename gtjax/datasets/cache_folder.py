"""Where downloads are kept, and a lock so that two processes do not write the same file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_VARIABLE = "GTJAX_CACHE_DIR"


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """The folder of downloaded data sets: the argument, else GTJAX_CACHE_DIR, else the user's."""
    if cache_dir is None:
        cache_dir = os.environ.get(CACHE_VARIABLE) or None
    if cache_dir is None:
        import platformdirs

        cache_dir = platformdirs.user_cache_path("gtjax")
    return Path(cache_dir).expanduser() / "datasets"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock file; another process waits. Without effect on Windows."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

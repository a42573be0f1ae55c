"""Where downloads are kept, and a lock so that two processes do not write the same file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gtjax.core.user_cache import user_cache


def cache_folder(cache_dir: str | Path | None = None) -> Path:
    """The folder of downloaded data sets: below the argument, else below the user's cache."""
    base = user_cache() if cache_dir is None else Path(cache_dir).expanduser()
    return base / "datasets"


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

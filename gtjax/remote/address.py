"""Which paths are addresses of an object store.

Free of fsspec, so that a local path costs nothing and needs no package.
"""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = re.compile(r"[a-z][a-z0-9+.-]+://.*", re.DOTALL)
_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)(.*)", re.DOTALL)  # Path makes one slash of two


def address_of(path: str | Path) -> str | None:
    """The address, such as "s3://bucket/run", if this is one; None for a local path.

    A `Path` of an address, as a command line makes it, counts too.
    """
    text = str(path)
    if _TEXT.fullmatch(text):
        return text.rstrip("/") if not text.endswith("://") else text
    if isinstance(path, Path) and (found := _PATH.fullmatch(text)):
        slashes = ":///" if found[1] in ("file", "local") else "://"
        return f"{found[1]}{slashes}{found[2]}"
    return None


def shown(path: str | Path) -> str:
    """As a user would type it."""
    return address_of(path) or str(path)


def inside(path: str | Path, *names: str) -> str | Path:
    """A place in a folder, which may be an address."""
    address = address_of(path)
    return Path(path, *names) if address is None else "/".join((address, *names))

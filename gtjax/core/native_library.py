"""Finds a native library that was built when the package was installed, if there was a compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def load_library(folder: Path, name: str, bind: Callable[[ctypes.CDLL], T]) -> T | str:
    """What `bind` makes of the library `name` in `folder`; or what keeps it from running here."""
    # Named as Python extensions are on the platform.
    suffixes = (".so", ".pyd", ".dylib")
    found = sorted(path for path in folder.glob(f"{name}.*") if path.suffix in suffixes)
    if not found:
        return (
            "it was not built, for lack of a C++ compiler when gtjax was installed "
            '(install one and repeat "pip install")'
        )
    try:
        return bind(ctypes.CDLL(str(found[0])))
    except (OSError, AttributeError) as error:
        return f"its library does not load ({error}); repeat the installation"

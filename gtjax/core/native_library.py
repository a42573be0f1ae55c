"""Finds a native library that was built when the package was installed, if there was a compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")


class NativeLibrary(Generic[T]):
    """The library `name` in `folder`, and what `bind` makes of it; looked for when first asked."""

    def __init__(self, folder: Path, name: str, bind: Callable[[ctypes.CDLL], T]):
        self._folder, self._name, self._bind = folder, name, bind

    def why_not(self) -> str | None:
        """What keeps the native code from running here; None if it can."""
        return self._found if isinstance(self._found, str) else None

    def functions(self) -> T | None:
        """Its functions, if it is there."""
        return None if isinstance(self._found, str) else self._found

    @cached_property
    def _found(self) -> T | str:
        # Named as Python extensions are on the platform.
        suffixes = (".so", ".pyd", ".dylib")
        paths = self._folder.glob(f"{self._name}.*")
        found = sorted(path for path in paths if path.suffix in suffixes)
        if not found:
            return (
                "it was not built, for lack of a C++ compiler when gtjax was installed "
                '(install one and repeat "pip install")'
            )
        try:
            return self._bind(ctypes.CDLL(str(found[0])))
        except (OSError, AttributeError) as error:
            return f"its library does not load ({error}); repeat the installation"

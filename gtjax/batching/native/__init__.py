"""The native library of sampled batches: where it is, and its functions.

Built when the package is installed, if there is a C++ compiler; where there was none, `why_not`
says so and numpy takes its place, with the same draws at a tenth of the speed or less.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from gtjax.core.native_library import load_library


class _Loaded:
    def __init__(self, library: ctypes.CDLL):
        address, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64
        self.sample = {4: library.gtjax_sample_32, 8: library.gtjax_sample_64}
        graph = [address, address, whole, address, whole]
        draw = [number, number, address, address, address, ctypes.c_uint32]
        for function in self.sample.values():
            function.argtypes = [*graph, *draw, *[address] * 9]
            function.restype = whole
        self.gather_rows = library.gtjax_gather_rows
        self.gather_rows.argtypes = [address, address, whole, whole, address]
        self.gather_rows.restype = None


def why_not() -> str | None:
    """What keeps the native code from running here; None if it can."""
    found = _load()
    return found if isinstance(found, str) else None


def library() -> _Loaded | None:
    """Its functions, if it is there."""
    found = _load()
    return None if isinstance(found, str) else found


@functools.cache
def _load() -> _Loaded | str:
    return load_library(Path(__file__).parent, "_sampler", _Loaded)

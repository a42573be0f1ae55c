"""The native library of sampled batches: where it is, and its functions.

Built when the package is installed, if there is a C++ compiler; where there was none, `why_not`
says so and numpy takes its place, with the same draws at a tenth of the speed or less.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from gtjax.core.native_library import NativeLibrary


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


_NATIVE = NativeLibrary(Path(__file__).parent, "_sampler", _Loaded)
why_not, library = _NATIVE.why_not, _NATIVE.functions

"""The native library of the streaming partitioner: where it is, and its functions.

Built when the package is installed, if there is a C++ compiler; where there was none, `why_not`
says so and numpy takes its place, with the same partitions at a fraction of the speed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from gtjax.core.native_library import NativeLibrary


class _Loaded:
    def __init__(self, library: ctypes.CDLL):
        address, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64
        edges = [address, address, address, whole, whole]
        self.choose_labels = library.gtjax_choose_labels
        labels = [address, address, whole, address, address, address, whole, ctypes.c_double]
        self.choose_labels.argtypes = [*edges, *labels, number, *[address] * 6]
        self.choose_labels.restype = whole
        self.count_pairs = library.gtjax_count_pairs
        self.count_pairs.argtypes = [*edges, address, whole, address, address, whole, whole]
        self.count_pairs.restype = whole
        self.put_pairs = library.gtjax_put_pairs
        self.put_pairs.argtypes = [address, address, whole, address, address, whole, whole]
        self.put_pairs.restype = whole


_NATIVE = NativeLibrary(Path(__file__).parent, "_votes", _Loaded)
why_not, library = _NATIVE.why_not, _NATIVE.functions

"""Exact inference and training beyond memory: see README.md in this folder."""

from gtjax.chunks.engine import ChunkedFunction, Edged, Given
from gtjax.chunks.rows import ArrayRows, ChangedRows, CountedRows, Scratch
from gtjax.chunks.sizes import Sizes, sizes_for

__all__ = [
    "ArrayRows",
    "ChangedRows",
    "ChunkedFunction",
    "CountedRows",
    "Edged",
    "Given",
    "Scratch",
    "Sizes",
    "sizes_for",
]

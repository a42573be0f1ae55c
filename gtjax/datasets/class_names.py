"""Classes given as names: numbered in the order of their sorted names, -1 where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gtjax.datasets.tables import text_codes

if TYPE_CHECKING:
    import pyarrow as pa


def number_classes(column: pa.ChunkedArray) -> np.ndarray:
    """The class of every row of a text column; empty and blank names are no class."""
    codes_n, names = text_codes(column)
    used = sorted(name for name in names.to_pylist() if name.strip())
    number = {name: i for i, name in enumerate(used)}
    # The last place is for code -1, which stands for null.
    class_of_code = np.array([*(number.get(name, -1) for name in names.to_pylist()), -1], np.int32)
    return class_of_code[codes_n]

"""Classes given as names in a column of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gtjax.datasets.tables import text_codes
from gtjax.graph.class_labels import numbers_of_names

if TYPE_CHECKING:
    import pyarrow as pa


def number_classes(column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of every row of a text column, -1 where it is empty or blank, and their names."""
    codes_n, names = text_codes(column)
    numbers, classes = numbers_of_names(names.to_pylist())
    # The last place is for code -1, which stands for null.
    return np.append(numbers, np.int32(-1))[codes_n], classes

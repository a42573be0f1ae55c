"""Classes given as names: numbered in the order of their sorted names, -1 where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.graph.arrays import host_array


def numbers_of_names(names: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each of these distinct names, and the names of the classes; blank is none."""
    used = sorted(name for name in names if name.strip())
    number = {name: i for i, name in enumerate(used)}
    return np.array([number.get(name, -1) for name in names], np.int32), tuple(used)


def numbered_labels(field: str, labels: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as numbers, and the names of the classes if they were given as names.

    None, NaN and blank text among names are no class.
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, str) for label in labels):
        array = np.empty(len(labels), object)  # numpy would make text of numbers among them
        array[:] = labels
    else:
        array = host_array(field, labels)
    if array.dtype.kind == "O" and array.ndim == 1:
        array = _text(field, array)
    if array.dtype.kind != "U" or array.ndim != 1:
        return array, ()
    distinct, code_n = np.unique(array, return_inverse=True)
    numbers, classes = numbers_of_names(distinct.tolist())
    return numbers[code_n], classes


def _text(field: str, array: np.ndarray) -> np.ndarray:
    texts = []
    for number, value in enumerate(array.tolist()):
        missing = value is None or value != value  # NaN alone differs from itself
        if not missing and not isinstance(value, str):
            rule = "labels are all numbers or all text (None where unlabelled)"
            raise GraphFormatError(field, rule, f"{type(value).__name__} in row {number}")
        texts.append("" if missing else value)
    return np.array(texts, str)

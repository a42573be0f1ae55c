"""What graphs of PyTorch Geometric and DGL have in common; neither library is imported for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.graph.arrays import host_array
from gtjax.graph.graph import SPLITS


def features_of(field: str, value: Any, count: int) -> np.ndarray | None:
    """Features as a table with `count` rows, of which there may be one column; None is none."""
    if value is None:
        return None
    array = host_array(field, value)
    if array.ndim == 0 or len(array) != count:
        raise GraphFormatError(field, f"{count} rows", f"shape {list(array.shape)}")
    return array.reshape(count, -1) if count else array.reshape(0, *array.shape[1:2])


def labels_of(field: str, value: Any) -> np.ndarray | None:
    """Labels by their type: integers are classes, reals are targets.

    One column is as good as none. Of several, all of 0, 1 and NaN, each answers yes or no.
    """
    if value is None:
        return None
    labels = host_array(field, value)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.dtype.kind == "f":
        unknown = np.isnan(labels)
        if np.isin(labels[~unknown], (0, 1)).all():
            return np.where(unknown, -1, labels).astype(np.int32)
    return labels


def masks_of(get: Callable[[str], Any], split: int) -> dict[str, np.ndarray]:
    """Masks [N], or column `split` of masks [N, splits], as `get` gives them by their names."""
    masks: dict[str, np.ndarray] = {}
    for name in SPLITS:
        value = get(f"{name}_mask")
        if value is None:
            continue
        mask = host_array(f"{name}_mask", value)
        if mask.ndim == 2:
            if not 0 <= split < mask.shape[1]:
                raise UserError(
                    f"{name}_mask holds splits 0 to {mask.shape[1] - 1}: there is no split {split}."
                )
            mask = mask[:, split]
        masks[name] = mask.astype(bool) if mask.dtype.kind in "bu" else mask
    return masks

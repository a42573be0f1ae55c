"""What belongs to nodes, written to the folder of a stored graph block by block.

| form of features | file | when |
|---|---|---|
| float32, float16 | `x.npy` | as the data has them; float16 halves the bytes, to 3 digits |
| int8 | `x.npy`, `x_scale.npy` | asked for: a scale a row; data of int8 or booleans as it is |
| sparse | `x_offsets.npy`, `x_columns.npy`, `x_values.npy` | data that is sparse, or asked for |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.core.growing_array import GrowingArray
from gtjax.graph import Graph, Names
from gtjax.graph.stored import (
    LABELS,
    NODE_NAMES,
    X_COLUMNS,
    X_OFFSETS,
    X_SCALE,
    X_VALUES,
    X,
)
from gtjax.graph.stored_rows import scaled
from gtjax.graph.validation import check_finite, checked_labels, checked_splits

FORMS = ("auto", "float32", "float16", "int8", "sparse")
_BLOCK_BYTES = 1 << 25
_BLOCK_ROWS = 1 << 20


def write_features(
    folder: Path, blocks: Iterable[np.ndarray], width: int, dtype: np.dtype, form: str
) -> None:
    """Write rows of features [rows, width] of this type, in the form that is asked for."""
    if form == "sparse":
        writer: Any = _Sparse(folder, width)
    elif form == "int8":
        writer = _Scaled(folder, width)
    else:
        kept = dtype if dtype in (np.float16, np.float32) else np.dtype(np.float32)
        if form == "auto" and dtype in (np.int8, np.bool_):
            kept = np.dtype(np.int8)
        elif form != "auto":
            kept = np.dtype(form)
        writer = _Dense(folder, width, kept)
    row = 0
    try:
        for block in blocks:
            if block.dtype.kind == "f":
                check_finite("x_nf", block, row)
            writer.add(block, row)
            row += len(block)
        for file in writer.files:
            file.finish()
    finally:
        for file in writer.files:
            file.close()


def write_sparse_features(
    folder: Path, offsets: np.ndarray, columns_v: np.ndarray, values_v: np.ndarray
) -> None:
    """Write sparse rows as they are."""
    with np.errstate(over="ignore"):
        values_v = values_v.astype(np.float32, copy=False)
    if not np.isfinite(values_v).all():
        at = int(np.flatnonzero(~np.isfinite(values_v))[0])
        row = int(np.searchsorted(offsets, at, side="right")) - 1
        found = f"{values_v[at]} in row {row}, column {columns_v[at]}"
        raise GraphFormatError("x_nf", "features are finite", found)
    for name, array, kind in (
        (X_OFFSETS, offsets, np.int64),
        (X_COLUMNS, columns_v, np.int32),
        (X_VALUES, values_v, np.float32),
    ):
        write_array(folder / name, array.astype(kind, copy=False))


def write_labels(folder: Path, blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Write labels [N] or [N, tasks], checked as those of a `Graph` are; gives them mapped."""
    file = None
    try:
        for block in blocks:
            checked = checked_labels(block, len(block))
            file = file or GrowingArray(folder / LABELS, checked.dtype, checked.shape[1:])
            file.append(checked)
        if file is None:
            raise GraphFormatError("labels_n", "a graph has at least one node", 0)
        file.finish()
    finally:
        if file is not None:
            file.close()
    return np.load(folder / LABELS, mmap_mode="r")


def write_splits(folder: Path, masks: Any, labels_n: np.ndarray) -> None:
    """Write the masks, checked as those of a `Graph` are."""
    for name, mask_n in checked_splits(masks, labels_n).items():
        write_array(folder / f"{name}.npy", mask_n)


def node_facts(labels_n: np.ndarray, features: int, names: Names, num_nodes: int) -> dict[str, Any]:
    """What the manifest says of the nodes."""
    if labels_n.ndim == 2:
        classes = labels_n.shape[1]
    elif labels_n.dtype.kind == "f":
        classes = 1
    else:
        blocks = (labels_n[rows] for rows in row_blocks(len(labels_n), _BLOCK_ROWS))
        classes = max(max(int(block.max(initial=-1)) for block in blocks) + 1, len(names.classes))
    return {
        "nodes": num_nodes,
        "features": features,
        "classes": classes,
        "names": {"classes": list(names.classes), "features": list(names.features)},
    }


def write_node_names(folder: Path, names: np.ndarray | None) -> None:
    """Write what nodes are called, if they are."""
    if names is not None:
        write_array(folder / NODE_NAMES, names)


def write_nodes_of(folder: Path, graph: Graph, form: str) -> dict[str, Any]:
    """Write all that belongs to the nodes of a graph in memory; gives what the manifest says."""
    width = graph.num_features
    blocks = (graph.x_nf[rows] for rows in feature_blocks(graph.num_nodes, width))
    write_features(folder, blocks, width, graph.x_nf.dtype, form)
    labels_n = write_labels(folder, [graph.labels_n])
    write_splits(folder, graph.split_n, labels_n)
    write_node_names(folder, graph.names.nodes)
    return node_facts(labels_n, width, graph.names, graph.num_nodes)


def write_bare_nodes(
    folder: Path, num_nodes: int, ids: Iterator[np.ndarray] | None, longest: int
) -> dict[str, Any]:
    """Nodes of which nothing is known but their ids, None where those are their numbers."""
    rows = list(row_blocks(num_nodes, _BLOCK_ROWS))
    blocks = (np.zeros((block.stop - block.start, 0), np.float32) for block in rows)
    write_features(folder, blocks, 0, np.dtype(np.float32), "auto")
    labels_n = write_labels(
        folder, (np.full(block.stop - block.start, -1, np.int32) for block in rows)
    )
    if ids is not None:
        names = GrowingArray(folder / NODE_NAMES, f"<U{longest}")
        for some in ids:
            names.append(some.astype(f"<U{longest}"))
        names.finish()
    return node_facts(labels_n, 0, Names(), num_nodes)


def write_array(path: Path, array: np.ndarray) -> None:
    """Write an array that is in memory."""
    file = GrowingArray(path, array.dtype, array.shape[1:])
    file.append(array)
    file.finish()


def feature_blocks(num_nodes: int, width: int) -> Iterator[slice]:
    """Rows to read at once."""
    return row_blocks(num_nodes, max(1, _BLOCK_BYTES // (4 * max(1, width))))


def row_blocks(count: int, each: int) -> Iterator[slice]:
    """All rows, so many at once."""
    return (slice(start, min(start + each, count)) for start in range(0, count, each))


class _Dense:
    def __init__(self, folder: Path, width: int, dtype: np.dtype):
        self._file = GrowingArray(folder / X, dtype, (width,))
        self.files = (self._file,)

    def add(self, rows_nf: np.ndarray, first: int) -> None:
        with np.errstate(over="ignore"):
            kept_nf = rows_nf.astype(self._file.dtype, copy=False)
        if kept_nf.dtype.kind == "f":
            check_finite(f"x_nf as {kept_nf.dtype}", kept_nf, first)
        self._file.append(kept_nf)


class _Scaled:
    def __init__(self, folder: Path, width: int):
        self._values = GrowingArray(folder / X, np.int8, (width,))
        self._scale = GrowingArray(folder / X_SCALE, np.float32)
        self.files = (self._values, self._scale)

    def add(self, rows_nf: np.ndarray, first: int) -> None:
        values_nf, scale_n = scaled(rows_nf)
        self._values.append(values_nf)
        self._scale.append(scale_n)


class _Sparse:
    def __init__(self, folder: Path, width: int):
        self._offsets = GrowingArray(folder / X_OFFSETS, np.int64)
        self._columns = GrowingArray(folder / X_COLUMNS, np.int32)
        self._values = GrowingArray(folder / X_VALUES, np.float32)
        self._offsets.append(np.zeros(1, np.int64))
        self.files = (self._offsets, self._columns, self._values)

    def add(self, rows_nf: np.ndarray, first: int) -> None:
        with np.errstate(over="ignore"):
            rows_nf = rows_nf.astype(np.float32, copy=False)
        check_finite("x_nf", rows_nf, first)
        row_v, column_v = np.nonzero(rows_nf)
        counts = np.bincount(row_v, minlength=len(rows_nf))
        self._offsets.append(self._columns.rows + np.cumsum(counts))
        self._columns.append(column_v)
        self._values.append(rows_nf[row_v, column_v])

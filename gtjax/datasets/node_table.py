"""The table of nodes beside an edge list: ids, features, labels and split (see `edge_list`)."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gtjax.datasets.class_names import number_classes
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing
from gtjax.datasets.tables import is_number, is_text, text_codes, to_float32
from gtjax.datasets.text_tables import read_table
from gtjax.graph import SPLITS, Graph, GraphFormatError

if TYPE_CHECKING:
    import pyarrow as pa

_LABEL_NAMES = ("label", "y")
_SPLIT_WORDS = {
    "train": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}
_log = logging.getLogger("gtjax")


@dataclass(frozen=True)
class NodeTable:
    """Distinct ids, integers or strings, in the order of nodes, and the data of the nodes."""

    ids: pa.Array
    x_nf: np.ndarray
    labels_n: np.ndarray
    split_n: dict[str, np.ndarray] | None

    def numbers_of(self, ends: pa.ChunkedArray, field: str) -> np.ndarray:
        """The node numbers of the ids at one end of the edges."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = self.ids
        if is_text(ends.type):
            codes_e, distinct = _text_ids(ends, field)
        else:
            codes_e, distinct = None, _combined(ends)
        if distinct.type != ids.type:  # one table says 7, the other "7"
            with parsing(field, "ids that can be compared", pa.ArrowException):
                distinct, ids = distinct.cast(pa.string()), ids.cast(pa.string())
        found = pc.call_function("index_in", [distinct], pc.SetLookupOptions(ids))
        if found.null_count:
            unknown = distinct[int(np.flatnonzero(found.is_null().to_numpy(False))[0])]
            raise GraphFormatError(field, "every edge ends at a node of the table", unknown)
        numbers = found.to_numpy(zero_copy_only=False)
        return numbers if codes_e is None else numbers[codes_e]


def without_nodes_table(source: pa.ChunkedArray, target: pa.ChunkedArray) -> NodeTable:
    """The nodes that occur in edges, without features or labels."""
    import pyarrow as pa

    if is_text(source.type) or is_text(target.type):
        with parsing("source", "ids that can be compared", pa.ArrowException):
            ends = [_distinct_text(column) for column in (source, target)]
            ids = pa.concat_arrays(ends).unique()
    else:
        both = pa.concat_arrays([_combined(source), _combined(target)])
        ids = pa.array(np.unique(both.to_numpy(zero_copy_only=False)), pa.int64())
    if not len(ids):
        raise GraphFormatError("rows", "an edge list without a table of nodes has edges", 0)
    x_nf = np.zeros((len(ids), 0), np.float32)
    return NodeTable(ids, x_nf, np.full(len(ids), -1, np.int32), None)


def read_node_table(path: Path, limits: Limits) -> NodeTable:
    """Read ids, features, labels and split."""
    import pyarrow as pa

    table = read_table(path, limits)
    names = [name.strip().casefold() for name in table.column_names]
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise GraphFormatError("columns", "column names are distinct", name)
    columns = dict(zip(names, table.columns, strict=True))
    ids = pa.array(np.arange(table.num_rows), pa.int64())
    if "id" in columns:
        ids = _checked_ids(columns.pop("id"))
    labels_n = np.full(table.num_rows, -1, np.int32)
    for name in _LABEL_NAMES:
        if name in columns:
            labels_n = _labels(name, columns.pop(name))
            break
    split_n = _split(columns, table.num_rows)
    numeric = [column for column in columns.values() if is_number(column.type)]
    ignored = [name for name, column in columns.items() if not is_number(column.type)]
    if ignored:
        _log.info("%s: ignored columns that are not numbers: %s", path.name, ignored[:9])
    limits.check_bytes("columns", 4 * table.num_rows * len(numeric))
    x_nf = np.zeros((table.num_rows, len(numeric)), np.float32)
    for i, column in enumerate(numeric):
        x_nf[:, i] = to_float32(column)
    # A graph without edges checks all that belongs to nodes, so that an error names this file.
    none = np.zeros(0, np.int32)
    Graph(none, none, x_nf, labels_n, split_n or {})
    return NodeTable(ids, x_nf, labels_n, split_n)


def _checked_ids(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if column.null_count or not (is_text(column.type) or pa.types.is_integer(column.type)):
        found = f"{column.type}, {column.null_count} empty"
        raise GraphFormatError("id", "ids are integers or strings, never empty", found)
    if is_text(column.type):
        codes_n, distinct = _text_ids(column, "id")
        ids = distinct.take(pa.array(codes_n))
    else:
        ids = _combined(column)
    distinct_count = len(ids.unique())
    if distinct_count != len(ids):
        raise GraphFormatError("id", f"{len(ids)} distinct ids", f"{distinct_count} distinct")
    return ids


def _labels(field: str, column: pa.ChunkedArray) -> np.ndarray:
    if is_text(column.type):
        return number_classes(column)
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int32)
    if not is_number(column.type):
        raise GraphFormatError(field, "labels are integers or names", column.type)
    labels = to_float32(column)
    labels = np.where(np.isnan(labels), -1, labels)
    if (labels != np.floor(labels)).any() or np.abs(labels).max(initial=0) > 2**24:
        raise GraphFormatError(field, "labels are integers of at most 2^24", "another number")
    return labels.astype(np.int32)


def _split(columns: dict[str, pa.ChunkedArray], num_nodes: int) -> dict[str, np.ndarray] | None:
    """Masks, whose columns are taken out of `columns`; None if the table says nothing on it."""
    masks: dict[str, np.ndarray] = {}
    if "split" in columns:
        column = columns.pop("split")
        if column.null_count == len(column):
            return None
        if not is_text(column.type):
            raise GraphFormatError("split", "train, val, test or empty", column.type)
        codes_n, words = text_codes(column)
        masks = {name: np.zeros(num_nodes, bool) for name in SPLITS}
        for code, word in enumerate(words.to_pylist()):
            name = word.strip().casefold()
            if name and name not in _SPLIT_WORDS:
                raise GraphFormatError("split", "train, val, test or empty", word)
            if name:
                masks[_SPLIT_WORDS[name]] |= codes_n == code
        return masks
    for name in [name for name in columns if name in _SPLIT_WORDS]:
        column = columns.pop(name)
        values = to_float32(column) if is_number(column.type) else np.array([np.nan])
        if not np.isin(values, (0, 1)).all():
            raise GraphFormatError(name, "a mask column is true/false or 0/1", column.type)
        if _SPLIT_WORDS[name] in masks:
            raise GraphFormatError(name, "one column a mask", f"two for {_SPLIT_WORDS[name]}")
        masks[_SPLIT_WORDS[name]] = values == 1
    return masks or None


def _combined(column: pa.ChunkedArray) -> pa.Array:
    """A column of integers as one int64 array."""
    import pyarrow as pa

    with parsing("id", "integer ids fit 64 bits", pa.ArrowException):
        return pa.array(column.cast(pa.int64()).to_numpy(), pa.int64())


def _distinct_text(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if is_text(column.type):
        return text_codes(column)[1]
    return _combined(column).unique().cast(pa.string())


def _text_ids(column: pa.ChunkedArray, field: str) -> tuple[np.ndarray, pa.Array]:
    """`text_codes` of a column of ids, none of which may be an empty string."""
    codes, distinct = text_codes(column)
    if distinct.index("").as_py() >= 0:
        raise GraphFormatError(field, "ids are never empty", "an empty string")
    return codes, distinct

"""The table of nodes beside an edge list: ids, features, labels and split (see `edge_list`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.core.progress import say
from gtjax.datasets.class_names import number_classes
from gtjax.datasets.limits import GIB, Limits
from gtjax.datasets.parsing import parsing
from gtjax.datasets.table_columns import Columns, TableColumns
from gtjax.datasets.tables import is_integer, is_number, is_text, text_codes, to_float32
from gtjax.graph import SPLITS, Graph, Names

if TYPE_CHECKING:
    import pyarrow as pa

    from gtjax.datasets.edge_table import EdgeTable

_LABEL_NAMES = ("label", "y")
_SPLIT_WORDS = {
    "train": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}
_MAX_LABEL = 2**24
_MAX_NAMES_BYTES = 4 * GIB  # of a table as wide as the longest id


@dataclass(frozen=True)
class NodeTable:
    """Distinct ids, integers or strings, in the order of nodes, and the data of the nodes."""

    ids: pa.Array
    x_nf: np.ndarray
    labels_n: np.ndarray
    split_n: dict[str, np.ndarray] | None
    names: Names = field(default_factory=Names)

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
            rule = "every edge ends at a node of the table"
            raise GraphFormatError(field, rule, str(unknown))
        numbers = found.to_numpy(zero_copy_only=False)
        return numbers if codes_e is None else numbers[codes_e]


def without_nodes_table(edges: EdgeTable, limits: Limits) -> NodeTable:
    """The nodes that occur in edges, without features or labels."""
    import pyarrow as pa

    source, target = edges.source, edges.target
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
    names = Names(nodes=_node_names(ids, limits))
    return NodeTable(ids, x_nf, np.full(len(ids), -1, np.int32), None, names)


class NodeColumns(NamedTuple):
    """Which columns of a table of nodes are what."""

    id: int | None
    others: list[int]
    """Label and split."""
    features: list[int]


def node_columns(table: pa.Table, where: str, wanted: Columns) -> NodeColumns:
    """Which columns are what; looks at names and types alone."""
    columns = _distinct_columns(table, where)
    at = columns.named(wanted.id, ("id",))
    named = [columns.named(wanted.label, _LABEL_NAMES), columns.named(wanted.split, ("split",))]
    others = [i for i in named if i is not None]
    if named[1] is None:
        others += [i for i, name in enumerate(columns.folded) if name in _SPLIT_WORDS]
    others = [i for i in dict.fromkeys(others) if i != at]
    taken = set(others) if at is None else {*others, at}
    return NodeColumns(at, others, columns.features(wanted.features, taken))


def _distinct_columns(table: pa.Table, where: str) -> TableColumns:
    columns = TableColumns(table, where)
    name, times = Counter(columns.folded).most_common(1)[0] if columns.folded else ("", 0)
    if times > 1:
        raise GraphFormatError("columns", "column names are distinct", name)
    return columns


def nodes_of(table: pa.Table, where: str, limits: Limits, wanted: Columns) -> NodeTable:
    """Ids, features, labels and split of the nodes in a table; `where` is what it is called."""
    import pyarrow as pa

    columns = _distinct_columns(table, where)
    taken: set[int] = set()
    ids = pa.array(np.arange(table.num_rows), pa.int64())
    if (at := columns.named(wanted.id, ("id",))) is not None:
        taken.add(at)
        ids = _checked_ids(table.column(at))
    labels_n, classes = np.full(table.num_rows, -1, np.int32), ()
    if (at := columns.named(wanted.label, _LABEL_NAMES)) is not None:
        taken.add(at)
        labels_n, classes = _labels(columns.folded[at], table.column(at))
    split_n = _split(columns, table, wanted.split, taken)
    numeric = columns.features(wanted.features, taken)
    limits.check_bytes("columns", 4 * table.num_rows * len(numeric))
    x_nf = np.zeros((table.num_rows, len(numeric)), np.float32)
    for i, column in enumerate(numeric):
        x_nf[:, i] = to_float32(table.column(column))
    # A graph without edges checks all that belongs to nodes, so that an error names this file.
    none = np.zeros(0, np.int32)
    names = Names(_node_names(ids, limits), classes, columns.names(numeric))
    Graph(none, none, x_nf, labels_n, split_n or {}, names=names)
    return NodeTable(ids, x_nf, labels_n, split_n, names)


def _node_names(ids: pa.Array, limits: Limits) -> np.ndarray | None:
    """The ids as text [N], but where they are the numbers of the nodes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = not is_text(ids.type)
    if numbers and np.array_equal(ids.to_numpy(zero_copy_only=False), np.arange(len(ids))):
        return None
    texts = ids.cast(pa.string())
    longest = pc.call_function("max", [pc.call_function("utf8_length", [texts])]).as_py() or 0
    size = 4 * longest * len(texts)
    if size > min(limits.max_bytes, _MAX_NAMES_BYTES):
        say(f"ids are not kept as names: with the longest, of {longest}, they take {size} bytes")
        return None
    return np.array(texts.to_pylist(), str)


def _checked_ids(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    if column.null_count or not (is_text(column.type) or is_integer(column.type)):
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


def _labels(field: str, column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Classes and their names, or real numbers, NaN where empty."""
    if is_text(column.type):
        return number_classes(column)
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int32), ()
    if not is_number(column.type):
        raise GraphFormatError(field, "labels are numbers or names", column.type)
    labels = to_float32(column)
    known = labels[~np.isnan(labels)]
    whole = (known == np.floor(known)).all() and np.abs(known).max(initial=0) <= _MAX_LABEL
    if whole:
        return np.where(np.isnan(labels), -1, labels).astype(np.int32), ()
    if is_integer(column.type):
        raise GraphFormatError(field, "labels are integers of at most 2^24", "a larger one")
    return labels, ()


def _split(
    columns: TableColumns, table: pa.Table, wanted: str | None, taken: set[int]
) -> dict[str, np.ndarray] | None:
    """Masks, whose columns are added to those `taken`; None if the table says nothing on it."""
    masks: dict[str, np.ndarray] = {}
    if (at := columns.named(wanted, ("split",))) is not None:
        taken.add(at)
        return _masks_by_word(columns.folded[at], table.column(at))
    for at, name in enumerate(columns.folded):
        if name not in _SPLIT_WORDS or at in taken:
            continue
        taken.add(at)
        column = table.column(at)
        values = to_float32(column) if is_number(column.type) else np.array([np.nan])
        if not np.isin(values, (0, 1)).all():
            raise GraphFormatError(name, "a mask column is true/false or 0/1", column.type)
        if _SPLIT_WORDS[name] in masks:
            raise GraphFormatError(name, "one column a mask", f"two for {_SPLIT_WORDS[name]}")
        masks[_SPLIT_WORDS[name]] = values == 1
    return masks or None


def _masks_by_word(field: str, column: pa.ChunkedArray) -> dict[str, np.ndarray] | None:
    if column.null_count == len(column):
        return None
    if not is_text(column.type):
        raise GraphFormatError(field, "train, val, test or empty", column.type)
    codes_n, words = text_codes(column)
    masks = {name: np.zeros(len(column), bool) for name in SPLITS}
    for code, word in enumerate(words.to_pylist()):
        name = word.strip().casefold()
        if name and name not in _SPLIT_WORDS:
            raise GraphFormatError(field, "train, val, test or empty", word)
        if name:
            masks[_SPLIT_WORDS[name]] |= codes_n == code
    return masks


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

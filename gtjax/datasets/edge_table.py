"""The table of edges: the ids at both ends, and features (see `edge_list`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing
from gtjax.datasets.table_columns import Columns, TableColumns
from gtjax.datasets.tables import is_integer, is_text, to_float32

if TYPE_CHECKING:
    import pyarrow as pa

_SOURCE_NAMES = ("source", "src", "sender", "from")
_TARGET_NAMES = ("target", "dst", "receiver", "to")


@dataclass(frozen=True)
class EdgeTable:
    """The ids at the two ends of every edge, integers or strings, and the edges' features."""

    source: pa.ChunkedArray
    target: pa.ChunkedArray
    edge_x_ef: np.ndarray | None


class EdgeColumns(NamedTuple):
    """Which columns of a table are the ends of an edge, and which its features."""

    source: int
    target: int
    features: list[int]


def edge_columns(table: pa.Table, where: str, wanted: Columns) -> EdgeColumns:
    """Which columns are what, of a table that has rows; `where` is what it is called."""
    if table.num_columns < 2:
        rule = "at least two columns, the ends of an edge"
        raise GraphFormatError("columns", rule, ", ".join(table.column_names) or "none")
    columns = TableColumns(table, where)
    ends = columns.named(wanted.source, _SOURCE_NAMES), columns.named(wanted.target, _TARGET_NAMES)
    if None in ends and (wanted.source or wanted.target):
        raise GraphFormatError("columns", "both source and target are named", columns.names())
    source, target = (0, 1) if None in ends else ends
    assert source is not None
    assert target is not None
    if not table.num_rows:  # a CSV of no rows has columns of no type
        return EdgeColumns(source, target, [])
    for field, end in (("source", source), ("target", target)):
        column = table.column(end)
        if column.null_count or not (is_text(column.type) or is_integer(column.type)):
            found = f"{column.type}, {column.null_count} empty"
            raise GraphFormatError(field, "ids are integers or strings, never empty", found)
    return EdgeColumns(source, target, columns.features(wanted.edge_features, {source, target}))


def edges_of(table: pa.Table, where: str, limits: Limits, wanted: Columns) -> EdgeTable:
    """Both ends and the features of the edges in a table; `where` is what it is called."""
    source, target, numeric = edge_columns(table, where, wanted)
    if not table.num_rows:
        return EdgeTable(_no_ids(), _no_ids(), None)
    edge_x_ef = None
    if numeric:
        limits.check_bytes("columns", 4 * table.num_rows * len(numeric))
        with parsing("columns", "columns of numbers"):
            edge_x_ef = np.stack([to_float32(table.column(i)) for i in numeric], axis=1)
    return EdgeTable(table.column(source), table.column(target), edge_x_ef)


def _no_ids() -> pa.ChunkedArray:
    import pyarrow as pa

    return pa.chunked_array([], pa.int64())

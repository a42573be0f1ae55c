"""Graphs of pandas DataFrames, read as tables in files are (see `edge_list`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gtjax.core.errors import UserError, in_file
from gtjax.datasets.edge_list import graph_of
from gtjax.datasets.edge_table import edges_of
from gtjax.datasets.node_table import nodes_of, without_nodes_table
from gtjax.datasets.parsing import parsing
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.table_columns import Columns
from gtjax.graph import Graph

if TYPE_CHECKING:
    import pyarrow as pa

_INDEX = "index of the table of nodes"


def from_pandas(
    edges: Any,
    nodes: Any = None,
    *,
    source: str | None = None,
    target: str | None = None,
    id: str | None = None,
    label: str | None = None,
    split: str | None = None,
    features: Sequence[str] | None = None,
    edge_features: Sequence[str] | None = None,
    seed: int = 0,
    name: str = "graph",
) -> Graph:
    """Graph of a DataFrame of edges, and one of nodes; ids are integers or strings.

    Columns that are not named here are found as in files: `source` and `target` (or src and dst,
    else the first two), `label` (or y), `split`; all other columns of numbers are features. `id` is
    the column of that name, else the table's index. With labels but no split, 60/20/20 of every
    class are drawn by `seed`. Ids and the names of classes and features are in `graph.names`.
    """
    wanted = Columns(source, target, id, label, split, features, edge_features)
    options = ReadOptions(seed=seed)
    with in_file("edges"):
        edge_table = edges_of(_table(edges, "edges"), "edges", options.limits, wanted)
    if nodes is None:
        with in_file("edges"):
            node_table = without_nodes_table(edge_table, options.limits)
    else:
        with in_file("nodes"):
            table, wanted = _with_ids(_table(nodes, "nodes"), nodes, wanted)
            node_table = nodes_of(table, "nodes", options.limits, wanted)
    with in_file("edges"):
        return graph_of(edge_table, node_table, options, name)


def _table(frame: Any, what: str) -> pa.Table:
    """The columns of a frame, without its index."""
    import pyarrow as pa

    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise UserError(
            'pandas is not installed, and this needs it. Run: pip install "gtjax[pandas]"'
        ) from error
    if not isinstance(frame, pandas.DataFrame):
        raise UserError(
            f"from_pandas takes {what} as a pandas.DataFrame; found {type(frame).__name__}. Arrays "
            f"of node numbers go into gtjax.from_edges, files into gtjax.load."
        )
    with parsing("columns", "columns of numbers or text", pa.ArrowException, TypeError):
        table = pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
        return _plain(table)


def _plain(table: pa.Table) -> pa.Table:
    """With categories that are not text written out."""
    import pyarrow as pa

    for number, column in enumerate(table.columns):
        kind = column.type
        if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
            written = column.cast(kind.value_type)
            table = table.set_column(number, table.column_names[number], written)
    return table


def _with_ids(table: pa.Table, frame: Any, wanted: Columns) -> tuple[pa.Table, Columns]:
    """With the index as a column, where no other holds the ids."""
    import pyarrow as pa

    names = [column.strip().casefold() for column in table.column_names]
    if wanted.id is not None or "id" in names:
        return table, wanted
    with parsing("index", "an index of integers or text", pa.ArrowException, TypeError):
        ids = pa.array(frame.index.to_numpy(), from_pandas=True)
    return table.append_column(_INDEX, ids), dataclasses.replace(wanted, id=_INDEX)

"""Edge lists as CSV or Parquet, with an optional table of nodes: bring your own graph.

Give the edge table, or a folder that holds `edges.*`. Endings: .csv .tsv .txt .edges (each also
with .gz) and .parquet. Text may start with comment lines (# or %), is separated by tab, comma,
semicolon or space, and its first line names the columns unless every field of it is a number.

Edges    Columns named source/target, src/dst, sender/receiver or from/to, else the first two.
         Every other column of numbers is an edge feature. Edges are directed as written; call
         `graph.symmetrised()` if each stands for both directions.
Nodes    `nodes.*` in the same folder, with a header. `id` names the nodes (else they are numbered
         by row); `label` or `y` is the class, a number or a name, empty where unlabelled; `split`
         says train, val or test (or nothing), or boolean columns train, val, test do. Every other
         column of numbers is a feature. An edge that names an unknown id is an error.

Without a table of nodes, the nodes are the ids that occur in edges: integers in ascending order,
strings in order of first appearance. With labels but no split, 60/20/20 of every class are drawn
by seed and split number. Columns that are neither numbers nor named above are ignored and logged.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gtjax.datasets.limits import Limits
from gtjax.datasets.node_table import NodeTable, read_node_table, without_nodes_table
from gtjax.datasets.parsing import parsing
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.splits import stratified_split
from gtjax.datasets.tables import is_number, is_text, to_float32
from gtjax.datasets.text_tables import TABLE_SUFFIXES, read_table
from gtjax.graph import Graph, GraphFormatError
from gtjax.graph.errors import in_file

if TYPE_CHECKING:
    import pyarrow as pa

_SOURCE_NAMES = ("source", "src", "sender", "from")
_TARGET_NAMES = ("target", "dst", "receiver", "to")
_log = logging.getLogger("gtjax")


def recognises(path: Path) -> bool:
    """A file by its ending, or a folder that holds `edges.*`."""
    if path.is_dir():
        return _find_table(path, "edges") is not None
    return path.name.lower().endswith(TABLE_SUFFIXES)


def read(path: Path, options: ReadOptions) -> Graph:
    """Read the edges, the nodes if there is a table of them, and draw a split if none is given."""
    edge_file = _find_table(path, "edges") if path.is_dir() else path
    assert edge_file is not None, "recognises() has seen it"
    node_file = _find_table(edge_file.parent, "nodes")
    if node_file == edge_file:
        node_file = None
    with in_file(edge_file):
        source, target, edge_x_ef = _read_edges(edge_file, options.limits)
    if node_file is None:
        with in_file(edge_file):
            nodes = without_nodes_table(source, target)
    else:
        with in_file(node_file):
            nodes = read_node_table(node_file, options.limits)
    with in_file(edge_file):
        return Graph(
            senders_e=nodes.numbers_of(source, "source"),
            receivers_e=nodes.numbers_of(target, "target"),
            x_nf=nodes.x_nf,
            labels_n=nodes.labels_n,
            split_n=_split(nodes, options),
            edge_x_ef=edge_x_ef,
            name=path.name.split(".")[0] or "graph",
        )


def _read_edges(
    path: Path, limits: Limits
) -> tuple[pa.ChunkedArray, pa.ChunkedArray, np.ndarray | None]:
    """Columns of the two ends, and the features of edges."""
    table = read_table(path, limits)
    if table.num_columns < 2:
        rule = "at least two columns, the ends of an edge"
        raise GraphFormatError("columns", rule, ", ".join(table.column_names) or "none")
    names = [name.strip().casefold() for name in table.column_names]
    sources = [i for i, name in enumerate(names) if name in _SOURCE_NAMES]
    targets = [i for i, name in enumerate(names) if name in _TARGET_NAMES]
    ends = (sources[0], targets[0]) if sources and targets else (0, 1)
    if not table.num_rows:  # a CSV of no rows has columns of no type
        return _no_ids(), _no_ids(), None
    for field, end in zip(("source", "target"), ends, strict=True):
        column = table.column(end)
        if column.null_count or not (is_text(column.type) or _is_integer(column.type)):
            found = f"{column.type}, {column.null_count} empty"
            raise GraphFormatError(field, "ids are integers or strings, never empty", found)
    others = [i for i in range(table.num_columns) if i not in ends]
    numeric = [i for i in others if is_number(table.column(i).type)]
    ignored = [names[i] for i in others if not is_number(table.column(i).type)]
    if ignored:
        _log.info("%s: ignored columns that are not numbers: %s", path.name, ignored[:9])
    edge_x_ef = None
    if numeric:
        limits.check_bytes("columns", 4 * table.num_rows * len(numeric))
        with parsing("columns", "columns of numbers"):
            edge_x_ef = np.stack([to_float32(table.column(i)) for i in numeric], axis=1)
    return table.column(ends[0]), table.column(ends[1]), edge_x_ef


def _split(nodes: NodeTable, options: ReadOptions) -> dict[str, np.ndarray]:
    if nodes.split_n is not None:
        return nodes.split_n
    if (nodes.labels_n < 0).all():
        return {}
    return stratified_split(nodes.labels_n, options.seed, options.split)


def _find_table(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{suffix}" for suffix in TABLE_SUFFIXES]
    return next((file for file in found if file.is_file()), None)


def _is_integer(arrow_type: pa.DataType) -> bool:
    from pyarrow import types

    return types.is_integer(arrow_type)


def _no_ids() -> pa.ChunkedArray:
    import pyarrow as pa

    return pa.chunked_array([], pa.int64())

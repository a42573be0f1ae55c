"""Edge lists with integer ids as a stream, with a table of nodes beside them or without.

The features of a table of nodes are written block by block; its ids, labels and splits are in
memory on the way, some 80 bytes a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.core.progress import Progress
from gtjax.datasets.conversion.node_files import (
    node_facts,
    write_array,
    write_features,
    write_labels,
    write_node_names,
    write_splits,
)
from gtjax.datasets.conversion.parquet_edges import ParquetEdges
from gtjax.datasets.conversion.stream import Stream
from gtjax.datasets.conversion.text_edges import TextEdges
from gtjax.datasets.edge_list import name_of, split_of, tables_of
from gtjax.datasets.node_table import node_columns, nodes_of
from gtjax.datasets.parsing import parsing
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.table_columns import Columns
from gtjax.datasets.tables import is_integer, open_capped, to_float32
from gtjax.datasets.text_tables import text_form
from gtjax.graph import Names

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 1 << 24
_BATCH_ROWS = 1 << 16


def edge_list_stream(path: Path, options: ReadOptions, form: str) -> Stream | str:
    """The stream of an edge list; why there is none, if that is so."""
    edge_file, node_file = tables_of(path)
    if edge_file.suffix.lower() == ".parquet":
        edges: Any = ParquetEdges(edge_file)
    else:
        edges = TextEdges(edge_file, options.limits)
    if not edges.has_integer_ids:
        return "its ids are text"
    write_nodes = None
    if node_file is not None:
        with in_file(node_file):
            table = _NodeTable(node_file, options, form)
        if not table.has_integer_ids:
            return "the ids of its nodes are text"
        write_nodes = table.write
    files = [edge_file] if node_file is None else [edge_file, node_file]
    return Stream(name_of(path), files, edges, write_nodes)


def known_ids(work: Path) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a table of nodes in ascending order, and their numbers."""
    ids, numbers = (np.load(work / name, mmap_mode="r") for name in ("ids.npy", "numbers.npy"))
    return ids.view(np.ndarray), numbers.view(np.ndarray)


class _NodeTable:
    """A table of nodes that is read in blocks."""

    def __init__(self, path: Path, options: ReadOptions, form: str):
        self._path, self._options, self._form = path, options, form
        first = next(self._blocks())
        self._columns = node_columns(first, path.name, Columns())
        self._names = [first.column_names[i].strip() for i in self._columns.features]
        at = self._columns.id
        self.has_integer_ids = at is None or is_integer(first.column(at).type)

    def write(self, folder: Path, work: Path, progress: Progress) -> dict[str, Any]:
        """Write everything; see `Stream`."""
        with in_file(self._path):
            slim: list[pa.Table] = []
            kept = [i for i in (self._columns.id, *self._columns.others) if i is not None]

            def features() -> Iterator[np.ndarray]:
                rows = 0
                for block in self._blocks():
                    slim.append(block.select(kept))
                    rows += len(block)
                    progress(0.5, f"read {rows:,} nodes")
                    columns = [to_float32(block.column(i)) for i in self._columns.features]
                    yield np.stack(columns, axis=1) if columns else _no_features(len(block))

            width = len(self._columns.features)
            write_features(folder, features(), width, np.dtype(np.float32), self._form)
            return self._others(folder, work, slim)

    def _others(self, folder: Path, work: Path, slim: list[pa.Table]) -> dict[str, Any]:
        import pyarrow as pa

        count = sum(len(block) for block in slim)
        table = pa.concat_tables(slim)
        slim.clear()
        if not table.num_columns:  # which has forgotten its number of rows
            table = pa.table({"id": np.arange(count)})
        nodes = nodes_of(table, self._path.name, self._options.limits, Columns())
        del table
        labels_n = write_labels(folder, [nodes.labels_n])
        write_splits(folder, split_of(nodes, self._options), labels_n)
        write_node_names(folder, nodes.names.nodes)
        names = Names(None, nodes.names.classes, tuple(map(_printable, self._names)))
        facts = node_facts(labels_n, len(self._names), names, count)
        ids = nodes.ids.to_numpy(zero_copy_only=False)
        if np.array_equal(ids, np.arange(count)):
            return facts | {"ids": "numbers"}
        order = np.argsort(ids, kind="stable")
        write_array(work / "ids.npy", ids[order])
        write_array(work / "numbers.npy", order)
        return facts | {"ids": "table"}

    def _blocks(self) -> Iterator[pa.Table]:
        """At least one, which may have no rows."""
        import pyarrow as pa

        with parsing("table", "a readable table", pa.ArrowException, KeyError, TypeError):
            if self._path.suffix.lower() == ".parquet":
                yield from self._parquet_blocks()
            else:
                yield from self._text_blocks()

    def _parquet_blocks(self) -> Iterator[pa.Table]:
        import pyarrow as pa
        from pyarrow import parquet

        with parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=1 << 20) as file:
            schema = file.schema_arrow
            if len(set(schema.names)) != len(schema):
                raise GraphFormatError("columns", "column names are distinct", schema.names)
            yield schema.empty_table()
            for batch in file.iter_batches(_BATCH_ROWS):
                batch.validate(full=True)
                yield pa.Table.from_batches([batch])

    def _text_blocks(self) -> Iterator[pa.Table]:
        import pyarrow as pa
        from pyarrow import csv

        limits = self._options.limits
        form = text_form(self._path, limits)
        with open_capped(self._path, limits) as stream:
            reader = csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                csv.ReadOptions(
                    column_names=form.names,
                    skip_rows=form.skip_lines,
                    block_size=_BLOCK_BYTES,
                    use_threads=False,
                ),
                csv.ParseOptions(
                    delimiter=form.separator,
                    ignore_empty_lines=form.names is None or len(form.names) > 1,
                ),
            )
            yield reader.schema.empty_table()
            for batch in reader:
                yield pa.Table.from_batches([batch])


def _no_features(rows: int) -> np.ndarray:
    return np.zeros((rows, 0), np.float32)


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)

"""Edges from Parquet, batch by batch; going on begins at the row group that comes next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.datasets.conversion.edge_source import Edges, Piece, check_features, check_rows
from gtjax.datasets.edge_table import edge_columns
from gtjax.datasets.parsing import parsing
from gtjax.datasets.table_columns import Columns, TableColumns
from gtjax.datasets.tables import checked_width, is_integer, is_number, is_text, to_float32

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_A_ROW = 16  # of both ends


class ParquetEdges:
    """The edges of a Parquet file, whose ids are integers."""

    def __init__(self, path: Path, wanted: Columns | None = None):
        import pyarrow as pa

        self._path = path
        with in_file(path), parsing("table", "a readable table", pa.ArrowException):
            with self._open() as file:
                schema, self._rows = file.schema_arrow, file.metadata.num_rows
                groups = range(file.num_row_groups)
                self._group_rows = [file.metadata.row_group(i).num_rows for i in groups]
            checked_width(len(schema))
            if len(set(schema.names)) != len(schema):
                raise GraphFormatError("columns", "column names are distinct", schema.names)
            plain = [f for f in schema if is_text(f.type) or is_number(f.type)]
            # Types say which column is what; a row of nulls stands for those of the file.
            table = pa.schema(plain).empty_table()
            columns = edge_columns(table, path.name, wanted or Columns())
            ends = [plain[columns.source], plain[columns.target]]
            for field, end in zip(("source", "target"), ends, strict=True):
                if not (is_text(end.type) or is_integer(end.type)):
                    rule = "ids are integers or strings, never empty"
                    raise GraphFormatError(field, rule, end.type)
            self.has_integer_ids = all(is_integer(end.type) for end in ends)
            taken = {columns.source, columns.target}
            features = TableColumns(table, path.name).features(None, taken)
        self._features = [plain[i].name for i in features]
        self._ends = [end.name for end in ends]
        self.num_edge_features = len(features)
        self.num_bytes = _BYTES_A_ROW * self._rows

    def pieces(self, position: dict[str, Any] | None, bytes_each: int) -> Iterator[Piece]:
        """See `EdgeSource`."""
        import pyarrow as pa

        done = position["row"] if position else 0
        count = max(1, bytes_each // _BYTES_A_ROW)
        first, before = 0, 0  # the row group that row `done` is in, and the rows before it
        while first < len(self._group_rows) and before + self._group_rows[first] <= done:
            before += self._group_rows[first]
            first += 1
        rule = "a readable table"
        with in_file(self._path), parsing("table", rule, pa.ArrowException), self._open() as file:
            batches = file.iter_batches(
                min(count, 1 << 20),
                row_groups=list(range(first, len(self._group_rows))),
                columns=[*self._ends, *self._features],
            )
            waiting, rows, skip = [], 0, done - before
            for batch in batches:
                some = batch.slice(min(skip, len(batch)))
                skip -= len(batch) - len(some)
                waiting.append(some)
                rows += len(some)
                if rows >= count:
                    yield self._piece(waiting, done, rows)
                    waiting, done, rows = [], done + rows, 0
            if rows:
                yield self._piece(waiting, done, rows)

    def _piece(self, batches: list[pa.RecordBatch], first: int, rows: int) -> Piece:
        end = first + rows
        return Piece({"row": end}, end / self._rows, lambda: self._read(batches, first))

    def _read(self, batches: list[pa.RecordBatch], first: int) -> Edges:
        import pyarrow as pa

        def name_row(row: int) -> str:
            return f"row {first + row}"

        with in_file(self._path), parsing("table", "a readable table", pa.ArrowException):
            table = pa.Table.from_batches(batches)
            table.validate(full=True)
            ends = []
            for field, name in zip(("source", "target"), self._ends, strict=True):
                column = table.column(name)
                if column.null_count:
                    empty_e = column.is_null().to_numpy(zero_copy_only=False)
                    rule, text = "ids are never empty", np.full(len(empty_e), "an empty id")
                    check_rows(empty_e, field, rule, text, name_row)
                if column.type == pa.uint64():
                    values = column.to_numpy()
                    rule = "integer ids fit 64 bits"
                    check_rows(values > np.uint64(2**63 - 1), field, rule, values, name_row)
                ends.append(column.cast(pa.int64()).to_numpy())
            edge_x_ef = None
            if self._features:
                found = [to_float32(table.column(name)) for name in self._features]
                edge_x_ef = np.stack(found, axis=1)
                check_features(edge_x_ef, "columns", name_row)
            return Edges(ends[0], ends[1], edge_x_ef, name_row)

    def _open(self) -> Any:
        from pyarrow import parquet

        # Buffered, so that a large row group is not read as a whole.
        return parquet.ParquetFile(self._path, pre_buffer=False, buffer_size=1 << 20)

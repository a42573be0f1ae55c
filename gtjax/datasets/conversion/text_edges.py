"""Edges from text (CSV and the like), block by block, cut at the ends of lines.

Blocks are parsed by pyarrow with the types of the columns that it finds in the first of them, as
when the whole file is read. Gzip is decompressed on the way; going on in the middle of such a file
decompresses it again up to there.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.datasets.conversion.edge_source import (
    MOST_NAMED,
    Edges,
    MalformedRowsError,
    Piece,
    check_features,
    check_rows,
)
from gtjax.datasets.edge_table import EdgeColumns, edge_columns
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing
from gtjax.datasets.table_columns import Columns
from gtjax.datasets.tables import is_gzip, is_integer, to_float32
from gtjax.datasets.text_tables import text_form

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_BYTES = 1 << 24  # as much as pyarrow looks at to find the types when it reads a whole file
_ROW = re.compile(r"\bRow #\d+: ")
_GZIP_RATIO = 3  # of node numbers, roughly
_SHOWN = 60  # characters of a line


class TextEdges:
    """The edges of a table of text, whose ids are integers."""

    def __init__(self, path: Path, limits: Limits, wanted: Columns | None = None):
        import pyarrow as pa

        self._path = path
        with in_file(path):
            form = text_form(path, limits)
            self._separator, self.has_header = form.separator, form.names is None
            self._start, first = self._beginning(form.skip_lines, header=form.names is None)
            head = self._head(first, form.names)
            self.columns: EdgeColumns = edge_columns(head, path.name, wanted or Columns())
        self.names = [name.strip() for name in head.column_names]
        self._types = {f"f{i}": head.schema.field(i).type for i in range(head.num_columns)}
        ends = self.columns.source, self.columns.target
        self.has_integer_ids = all(
            is_integer(head.column(end).type) or not head.num_rows for end in ends
        )
        self._types |= {f"f{end}": pa.int64() for end in ends}
        self._used = [f"f{i}" for i in (*ends, *self.columns.features)]
        self.num_edge_features = len(self.columns.features)
        self.num_bytes = path.stat().st_size * (_GZIP_RATIO if is_gzip(path) else 1)

    def pieces(self, position: dict[str, Any] | None, bytes_each: int) -> Iterator[Piece]:
        """See `EdgeSource`."""
        total = max(1, self._path.stat().st_size)
        at, rest = position["byte"] if position else self._start, b""
        with in_file(self._path), parsing("table", "a readable table"), self._open() as stream:
            _skip(stream, at)
            while True:
                data = stream.read(bytes_each)
                block = rest + data
                if not block:
                    return
                cut = len(block) if len(data) < bytes_each else _last_line_end(block)
                if not cut:
                    rule = f"lines of at most {bytes_each} bytes (raise --memory for longer ones)"
                    raise GraphFormatError("line", rule, f"{len(block)} bytes or more")
                block, rest = block[:cut], block[cut:]
                begins, at = at, at + cut
                share = _place(stream) / total
                yield Piece({"byte": at}, share, lambda b=block, a=begins: self._read(b, a))
                if len(data) < bytes_each:
                    return

    def _read(self, block: bytes, begins: int) -> Edges:
        with in_file(self._path):
            table = self._parsed(block)
            if table is None:
                raise self._malformed(block, begins)

            def name_row(row: int) -> str:
                lines = [i for i, line in enumerate(_lines(block)) if line.strip(b"\r\n")]
                return f"line {self._line(begins) + lines[row]}"

            ends = []
            for field in ("source", "target"):
                column = table.column(f"f{getattr(self.columns, field)}")
                if column.null_count:
                    empty_e = column.is_null().to_numpy(zero_copy_only=False)
                    rule, text = "ids are never empty", np.full(len(empty_e), "an empty id")
                    check_rows(empty_e, field, rule, text, name_row)
                ends.append(column.to_numpy())
            edge_x_ef = None
            if self.columns.features:
                features = [to_float32(table.column(f"f{i}")) for i in self.columns.features]
                edge_x_ef = np.stack(features, axis=1)
                check_features(edge_x_ef, "columns", name_row)
            return Edges(ends[0], ends[1], edge_x_ef, name_row)

    def _parsed(self, block: bytes) -> pa.Table | None:
        """The table in some lines; None if it is not one."""
        import pyarrow as pa

        if not block.strip(b"\r\n"):
            fields = [pa.field(name, self._types[name]) for name in self._used]
            return pa.schema(fields).empty_table()
        try:
            return self._parse(block)
        except (pa.ArrowException, ValueError):
            return None

    def _parse(self, block: bytes) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(block),
            csv.ReadOptions(
                column_names=list(self._types), use_threads=False, block_size=len(block) + 1
            ),
            csv.ParseOptions(delimiter=self._separator),
            csv.ConvertOptions(column_types=self._types, include_columns=self._used),
        )

    def _malformed(self, block: bytes, begins: int) -> MalformedRowsError:
        """Find the lines that cannot be parsed, by halving."""
        lines = _lines(block)
        first, found = self._line(begins), []

        def search(start: int, end: int) -> None:
            if len(found) > MOST_NAMED or self._parsed(b"".join(lines[start:end])) is not None:
                return
            if end - start == 1:
                found.append(start)
                return
            middle = (start + end) // 2
            search(start, middle)
            search(middle, end)

        search(0, len(lines))
        named = [f"line {first + i}: {self._why(lines[i])}" for i in found[:MOST_NAMED]]
        rule = f"rows of {len(self._types)} columns, with integers at both ends of an edge"
        return MalformedRowsError("table", rule, named, len(found) - len(named))

    def _why(self, line: bytes) -> str:
        import pyarrow as pa

        text = line.decode("utf-8", "replace").strip("\r\n")
        text = "".join(c if c.isprintable() else "?" for c in text)
        shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
        try:
            self._parse(line)
        except (pa.ArrowException, ValueError) as error:
            return f"{shown} ({_ROW.sub('', str(error)).splitlines()[0][: 2 * _SHOWN]})"
        return shown

    def _line(self, at: int) -> int:
        """The number of the line that begins at a byte, from 1."""
        count, left = 1, at
        with self._open() as stream:
            while left and (data := stream.read(min(left, _FIRST_BYTES))):
                count, left = count + data.count(b"\n"), left - len(data)
        return count

    def _open(self) -> IO[bytes]:
        return gzip.open(self._path) if is_gzip(self._path) else self._path.open("rb")  # type: ignore[return-value]

    def _beginning(self, skip_lines: int, *, header: bool) -> tuple[int, bytes]:
        """Where the rows begin, and the bytes from the header on."""
        with parsing("table", "a readable table"), self._open() as stream:
            for _ in range(skip_lines):
                stream.readline()
            begins = stream.tell()
            data = stream.read(_FIRST_BYTES)
        if data.startswith(b"\xef\xbb\xbf"):
            begins, data = begins + 3, data[3:]
        if len(data) == _FIRST_BYTES:
            data = data[: _last_line_end(data) or len(data)]
        end = len(_lines(data)[0]) if header and data else 0
        return begins + end, data

    def _head(self, data: bytes, names: list[str] | None) -> pa.Table:
        """The first rows, of types that are found out."""
        import pyarrow as pa
        from pyarrow import csv

        with parsing("table", "a readable table", pa.ArrowException):
            try:
                return self._typed_head(data, names)
            except pa.ArrowException as error:
                # A malformed row is named later, if the types can be had without it.
                options = csv.ParseOptions(
                    delimiter=self._separator, invalid_row_handler=lambda row: "skip"
                )
                try:
                    return csv.read_csv(
                        pa.BufferReader(data), csv.ReadOptions(column_names=names), options
                    )
                except pa.ArrowException:
                    raise error from None

    def _typed_head(self, data: bytes, names: list[str] | None) -> pa.Table:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(column_names=names, block_size=len(data) + 1),
            csv.ParseOptions(delimiter=self._separator),
        )


def _lines(block: bytes) -> list[bytes]:
    return block.splitlines(keepends=True)


def _last_line_end(block: bytes) -> int:
    """How many bytes of a block are whole lines."""
    return block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, len(block) - 1) + 1


def _skip(stream: Any, count: int) -> None:
    if isinstance(stream, gzip.GzipFile):
        while count and (data := stream.read(min(count, _FIRST_BYTES))):
            count -= len(data)
    else:
        stream.seek(count)


def _place(stream: Any) -> int:
    """How many bytes of the file, as it is stored, have been read."""
    inner = getattr(stream, "fileobj", None)
    return inner.tell() if inner is not None else stream.tell()

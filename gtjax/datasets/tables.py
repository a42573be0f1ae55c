"""Read CSV and Parquet tables with pyarrow, with a cap on what they decompress to.

A name that ends in `.gz` is gzip. Nothing else here knows about graphs.
"""

from __future__ import annotations

import gzip
import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE_RULE = "a readable table"
_MAX_COLUMNS = 100_000
_MAX_LINE_BYTES = 1 << 24
_BATCH_ROWS = 1 << 16


def read_numbers(
    path: Path, limits: Limits, kind: Literal["integers", "reals"], columns: int | None = None
) -> np.ndarray:
    """A headerless CSV of numbers as int64 or float32 [rows, columns]; empty reals are NaN."""
    import pyarrow as pa

    width = len(first_line(path, limits)[1].split(","))
    if columns is not None and width != columns:
        raise GraphFormatError("columns", f"a table of {columns} columns", width)
    arrow_type = pa.int64() if kind == "integers" else pa.float32()
    names = [f"f{column}" for column in range(checked_width(width))]
    table = read_csv(
        path, limits, names=names, types=dict.fromkeys(names, arrow_type), delimiter=","
    )
    numbers = np.empty((table.num_rows, width), np.int64 if kind == "integers" else np.float32)
    limits.check_bytes("columns", numbers.nbytes)
    for column in range(width):
        values = table.column(column)
        if kind == "integers" and values.null_count:
            raise GraphFormatError(f"column {column}", "integers without gaps", "an empty value")
        numbers[:, column] = values.to_numpy()
    return numbers


def read_csv(
    path: Path,
    limits: Limits,
    *,
    delimiter: str,
    names: list[str] | None = None,
    types: dict[str, pa.DataType] | None = None,
    skip_lines: int = 0,
    quoted: bool = True,
) -> pa.Table:
    """A CSV as an arrow table; without `names` its first line names the columns."""
    import pyarrow as pa
    from pyarrow import csv

    with parsing("table", _TABLE_RULE, *_arrow_errors()), open_capped(path, limits) as stream:
        table = csv.read_csv(
            pa.PythonFile(stream, mode="r"),
            csv.ReadOptions(column_names=names, skip_rows=skip_lines, block_size=_MAX_LINE_BYTES),
            csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoted else False,
                # In a table of one column an empty line is a row without a value.
                ignore_empty_lines=names is None or len(names) > 1,
            ),
            csv.ConvertOptions(column_types=types),
        )
        checked_width(len(table.column_names))  # reading the names decodes them
    return table


def read_parquet(path: Path, limits: Limits) -> pa.Table:
    """The plain columns (numbers, booleans, strings) of a Parquet file as an arrow table.

    Strings stay dictionary-encoded: a repeated long string can otherwise take thousands of times
    its size in the file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    limits.check_bytes("file", path.stat().st_size)
    with parsing("table", _TABLE_RULE, *_arrow_errors()):
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
        checked_width(len(schema))
        if len(set(schema.names)) != len(schema):
            raise GraphFormatError("columns", "column names are distinct", schema.names)
        limits.check_bytes("rows", 8 * rows * len(schema))
        strings = [f.name for f in schema if is_text(f.type)]
        plain = [f.name for f in schema if is_text(f.type) or is_number(f.type)]
        batches, num_bytes = [], 0
        with parquet.ParquetFile(path, read_dictionary=strings) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=plain):
                batch.validate(full=True)
                num_bytes += batch.nbytes
                limits.check_bytes("rows", num_bytes)
                batches.append(batch)
        if not batches:
            return pa.schema([schema.field(name) for name in plain]).empty_table()
        return pa.Table.from_batches(batches)


def open_capped(path: Path, limits: Limits) -> AbstractContextManager[io.RawIOBase]:
    """A file opened for reading, decompressed if it is gzip, that refuses to exceed the cap."""
    limits.check_bytes("file", path.stat().st_size)
    return _CappedStream(gzip.open(path) if is_gzip(path) else path.open("rb"), limits)


def first_line(path: Path, limits: Limits, comments: tuple[bytes, ...] = ()) -> tuple[int, str]:
    """How many lines at the start are comments, and the line after them without its end."""
    with parsing("table", _TABLE_RULE), open_capped(path, limits) as stream:
        reader, skipped = io.BufferedReader(stream), 0
        while (line := reader.readline(_MAX_LINE_BYTES)).startswith(comments):
            skipped += 1
        if not line:
            raise GraphFormatError("table", "a table has at least one row", "an empty file")
        return skipped, line.decode("utf-8-sig").rstrip("\r\n")


def checked_width(width: int) -> int:
    """A number of columns, if it is not absurd: each costs memory before any row is read."""
    if width > _MAX_COLUMNS:
        raise GraphFormatError("columns", f"at most {_MAX_COLUMNS} columns", width)
    return width


def is_gzip(path: Path) -> bool:
    """Whether the name says that the file is gzip."""
    return path.suffix.lower() == ".gz"


def is_number(arrow_type: Any) -> bool:
    """Whether a column holds integers, reals or booleans."""
    from pyarrow import types

    return (
        types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
        or types.is_boolean(arrow_type)
    )


def is_integer(arrow_type: Any) -> bool:
    """Whether a column holds integers."""
    from pyarrow import types

    return types.is_integer(arrow_type)


def is_text(arrow_type: Any) -> bool:
    """Whether a column holds strings, dictionary-encoded or not."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return types.is_string(arrow_type) or types.is_large_string(arrow_type)


def text_codes(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """A text column as numbers into its distinct values, -1 where null, and those values."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a table without rows
        return np.zeros(0, np.int64), pa.array([], pa.string())
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, array.dictionary.cast(pa.string())


def to_float32(column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as float32, NaN where empty."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    values = column.to_numpy()
    with np.errstate(over="ignore"):  # an overflow is reported as not finite by Graph
        return values.astype(np.float32)


def _arrow_errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException, KeyError, TypeError, IndexError)


class _CappedStream(io.RawIOBase):
    """Passes bytes on until there are more than the cap."""

    def __init__(self, inner: Any, limits: Limits):
        self._inner = inner
        self._limits = limits
        self._num_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._inner.read(len(buffer))
        self._num_bytes += len(data)
        self._limits.check_bytes("file", self._num_bytes)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()

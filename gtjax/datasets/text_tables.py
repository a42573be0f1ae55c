"""A table from a file by its ending: Parquet, or text whose separator and header are found out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gtjax.datasets.limits import Limits
from gtjax.datasets.tables import checked_width, first_line, read_csv, read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges")
TABLE_SUFFIXES = (".parquet", *_TEXT_SUFFIXES, *(f"{suffix}.gz" for suffix in _TEXT_SUFFIXES))
_SEPARATORS = "\t,; "
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def read_table(path: Path, limits: Limits) -> pa.Table:
    """The table in `path`; columns of text without a header are named f0, f1 and so on."""
    if path.suffix.lower() == ".parquet":
        return read_parquet(path, limits)
    form = text_form(path, limits)
    return read_csv(
        path, limits, delimiter=form.separator, names=form.names, skip_lines=form.skip_lines
    )


class TextForm(NamedTuple):
    """How a table of text is written."""

    skip_lines: int
    """Comments at its start."""
    separator: str
    names: list[str] | None
    """Of the columns; None: the first line has them."""


def text_form(path: Path, limits: Limits) -> TextForm:
    """Find out how a table is written, from its first line."""
    skip_lines, line = first_line(path, limits, comments=(b"#", b"%"))
    separator = max(_SEPARATORS, key=line.count) if "\t" not in line else "\t"
    fields = line.split(separator)
    checked_width(len(fields))
    names = None
    if all(_NUMBER.fullmatch(field) for field in fields):
        names = [f"f{column}" for column in range(len(fields))]
    return TextForm(skip_lines, separator, names)

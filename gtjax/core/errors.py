"""The errors a user can cause, each stating the rule, the value and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class UserError(ValueError):
    """A mistake in what the user asked for; the command line prints it and exits with 2."""


class GraphFormatError(UserError):
    """Data that breaks a rule: names the file, the field, the rule and the offending value."""

    def __init__(self, field: str, rule: str, value: object, *, file: str | Path | None = None):
        self.field = field
        self.rule = rule
        self.value = _short(value)
        self.file = None if file is None else str(file)
        super().__init__(field, rule, value)

    def __str__(self) -> str:
        where = f"{self.file}: " if self.file else ""
        return f"{where}{self.field}: {self.rule}; found {self.value}"


@contextmanager
def in_file(path: str | Path) -> Iterator[None]:
    """Name `path` in every GraphFormatError raised inside that does not name a file yet."""
    try:
        yield
    except GraphFormatError as error:
        if error.file is None:
            error.file = str(path)
        raise


def _short(value: object, limit: int = 120) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def one_of(table: Mapping[str, T], name: str, option: str) -> T:
    """The entry of that name; another name is a mistake that suggests the nearest one."""
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"{option} is one of {', '.join(table)}; found {name!r}.{hint}")

"""Which columns of a table are what: named by the caller, else found by what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gtjax.core.errors import GraphFormatError
from gtjax.core.progress import say
from gtjax.datasets.tables import is_number

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 9


@dataclass(frozen=True)
class Columns:
    """The columns that a caller names; None is found out."""

    source: str | None = None
    target: str | None = None
    id: str | None = None
    label: str | None = None
    split: str | None = None
    features: Sequence[str] | None = None
    edge_features: Sequence[str] | None = None


class TableColumns:
    """The columns of one table by their names; `where` is what the table is called."""

    def __init__(self, table: pa.Table, where: str):
        self._table, self._where = table, where
        self.folded = [name.strip().casefold() for name in table.column_names]

    def named(self, wanted: str | None, known: tuple[str, ...]) -> int | None:
        """Number of the column that is wanted, which has to be there, else the first known one."""
        if wanted is not None:
            return self._number(wanted)
        found = [i for i, name in enumerate(self.folded) if name in known]
        return found[0] if found else None

    def features(self, wanted: Sequence[str] | None, taken: set[int]) -> list[int]:
        """Numbers of the columns that are wanted, else of all others that hold numbers.

        Columns that are left out because they hold no numbers are told to the user.
        """
        if wanted is not None:
            found = [self._number(name) for name in wanted]
            for i in found:
                if not is_number(self._table.column(i).type):
                    rule = "a column of features holds numbers"
                    raise GraphFormatError(self._name(i), rule, self._table.column(i).type)
            return found
        others = [i for i in range(self._table.num_columns) if i not in taken]
        numeric = [i for i in others if is_number(self._table.column(i).type)]
        left_out = [self._name(i) for i in others if i not in set(numeric)]
        if left_out:
            more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
            shown = ", ".join(left_out[:_SHOWN])
            say(f"{self._where}: left out, since they hold no numbers: {shown}{more}")
        return numeric

    def names(self, chosen: Sequence[int] | None = None) -> tuple[str, ...]:
        """What columns are called, all or some."""
        numbers = range(self._table.num_columns) if chosen is None else chosen
        return tuple(self._name(i) for i in numbers)

    def _number(self, wanted: str) -> int:
        names = [name.strip() for name in self._table.column_names]
        if str(wanted) not in names:
            shown = ", ".join(self.names()[: 3 * _SHOWN])
            raise GraphFormatError("columns", f"a column {wanted!r}", shown or "no column")
        return names.index(str(wanted))

    def _name(self, number: int) -> str:
        name = self._table.column_names[number].strip()
        return "".join(c if c.isprintable() else "?" for c in name)

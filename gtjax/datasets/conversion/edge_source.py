"""Edges as a stream: pieces of a file one after the other, each read when it is its turn.

A source gives pieces in the order of the file. What takes time (parsing) is left to `Piece.read`,
which may run in another thread; `Piece.position` says where the next piece begins, so that reading
can go on from there tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.graph.graph import Graph

MOST_NAMED = 20  # malformed rows in one error


class Edges(NamedTuple):
    """The ids at both ends of some edges, int64, and their features."""

    senders_e: np.ndarray
    receivers_e: np.ndarray
    edge_x_ef: np.ndarray | None
    name_row: Callable[[int], str]
    """What to call one of these rows in an error, such as "line 17"."""


class Piece(NamedTuple):
    """Some edges that are still to be read."""

    position: dict[str, Any]
    """Where the piece behind this one begins, as JSON."""
    share: float
    """How much of the input is behind us then, of 1."""
    read: Callable[[], Edges]


class EdgeSource(Protocol):
    """Where edges come from."""

    num_edge_features: int
    num_bytes: int
    """Of the input, roughly."""

    def pieces(self, position: dict[str, Any] | None, bytes_each: int) -> Iterator[Piece]:
        """The pieces from a position on, None being the start; each of about so many bytes."""
        ...


class MalformedRowsError(GraphFormatError):
    """Rows that break a rule, each by its name."""

    def __init__(self, field: str, rule: str, rows: list[str], more: int = 0):
        self.rows, self.more = rows, more
        super().__init__(field, rule, "; ".join(rows))
        # Not shortened, so that every row is named.
        self.value = "; ".join(rows) + (f"; and {more} more" if more else "")


def check_rows(
    bad_e: np.ndarray, field: str, rule: str, values: np.ndarray, name_row: Callable[[int], str]
) -> None:
    """Name the rows that are bad, if there are any."""
    rows = np.flatnonzero(bad_e)
    if len(rows):
        named = [f"{name_row(int(row))}: {values[row]}" for row in rows[:MOST_NAMED]]
        raise MalformedRowsError(field, rule, named, len(rows) - len(named))


def check_features(
    edge_x_ef: np.ndarray | None, field: str, name_row: Callable[[int], str]
) -> None:
    """Refuse edges whose features are not finite."""
    if edge_x_ef is not None:
        bad_e = np.asarray((~np.isfinite(edge_x_ef)).any(axis=1))
        check_rows(bad_e, field, "features are finite", edge_x_ef, name_row)


class GraphEdges:
    """The edges of a graph that is in memory."""

    def __init__(self, graph: Graph):
        self._graph, self.num_edge_features = graph, graph.num_edge_features
        self.num_bytes = 16 * graph.num_edges

    def pieces(self, position: dict[str, Any] | None, bytes_each: int) -> Iterator[Piece]:
        """See `EdgeSource`."""
        graph, count = self._graph, max(1, bytes_each // 16)
        for start in range(position["row"] if position else 0, graph.num_edges, count):
            some = slice(start, start + count)
            end = min(start + count, graph.num_edges)
            yield Piece({"row": end}, end / graph.num_edges, lambda some=some: self._read(some))

    def _read(self, some: slice) -> Edges:
        graph = self._graph
        edge_x_ef = None if graph.edge_x_ef is None else graph.edge_x_ef[some]
        senders_e, receivers_e = (
            ends[some].astype(np.int64) for ends in (graph.senders_e, graph.receivers_e)
        )
        return Edges(senders_e, receivers_e, edge_x_ef, lambda row: f"edge {some.start + row}")

"""Edges from an `.npz` whose `edge_index` is [2, E]: both rows are read side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.datasets.conversion.edge_source import Edges, Piece, check_features
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import ArrayStream, NpzArchive

_BYTES_AN_EDGE = 16


class NpzEdges:
    """The edges of an archive.

    features: key of a table [E, K] of edge features, if there is one.
    types:    key of the types of edges [E], which become one-hot features.
    """

    def __init__(
        self, path: Path, limits: Limits, features: str | None = None, types: str | None = None
    ):
        self._path, self._limits = path, limits
        self._features, self._types = features, types
        with in_file(path), NpzArchive(path, limits) as archive:
            with contextlib.closing(_ends(archive)) as ends:
                shape = ends.shape
                self._interleaved = ends.fortran
            if shape[0] != 2:
                rule = "two rows, senders and receivers"
                raise GraphFormatError("edge_index", rule, f"shape {list(shape)}")
            self.num_edges, self.num_edge_features = shape[1], 0
            self.num_bytes = _BYTES_AN_EDGE * self.num_edges
            if features is not None:
                table = archive.stream(features, ndim=(2,), kinds="biuf")
                self._check_rows(features, table)
                self.num_edge_features = table.shape[1]
                table.close()
            elif types is not None:
                self.num_edge_features = self._number_of_types(archive, types)

    def pieces(self, position: dict[str, Any] | None, bytes_each: int) -> Iterator[Piece]:
        """See `EdgeSource`."""
        at, total = position["row"] if position else 0, self.num_edges
        count = max(1, bytes_each // _BYTES_AN_EDGE)
        with contextlib.ExitStack() as stack:
            stack.enter_context(in_file(self._path))
            archive = stack.enter_context(NpzArchive(self._path, self._limits))

            def opened(stream: ArrayStream, skip: int) -> ArrayStream:
                stack.callback(stream.close)
                return stream.skip(skip)

            if self._interleaved:
                streams = [opened(_ends(archive), 2 * at)]
            else:
                streams = [opened(_ends(archive), row * total + at) for row in range(2)]
            extra, width = None, self.num_edge_features
            if self._features is not None:
                extra = archive.stream(self._features, ndim=(2,), kinds="biuf")
                extra = opened(extra, at * width)
            elif self._types is not None:
                extra = opened(archive.stream(self._types, ndim=(1,), kinds="iu"), at)
            while at < total:
                rows = min(count, total - at)
                if self._interleaved:
                    ends = streams[0].take(2 * rows).reshape(rows, 2).T
                else:
                    ends = [stream.take(rows) for stream in streams]
                values = None
                if extra is not None:
                    values = extra.take(rows * (width if self._features else 1))
                begins, at = at, at + rows
                yield Piece(
                    {"row": at},
                    at / total,
                    lambda ends=ends, values=values, begins=begins: self._read(
                        ends, values, begins
                    ),
                )

    def _read(self, ends: Any, values: np.ndarray | None, begins: int) -> Edges:
        def name_row(row: int) -> str:
            return f"edge {begins + row}"

        with in_file(self._path), np.errstate(over="ignore"):
            edge_x_ef, width = None, self.num_edge_features
            if values is not None and self._features:
                edge_x_ef = values.reshape(-1, width).astype(np.float32)
            elif values is not None:
                edge_x_ef = np.zeros((len(values), width), np.float32)
                edge_x_ef[np.arange(len(values)), values] = 1
            check_features(edge_x_ef, self._features or "edge_type", name_row)
            # What an unsigned number loses here is negative, and refused as such.
            senders_e, receivers_e = (np.ascontiguousarray(end, np.int64) for end in ends)
            return Edges(senders_e, receivers_e, edge_x_ef, name_row)

    def _check_rows(self, key: str, table: ArrayStream) -> None:
        if table.shape[0] != self.num_edges:
            raise GraphFormatError(
                key, f"one row for each of {self.num_edges} edges", table.shape[0]
            )
        if table.fortran and table.shape[1] > 1:
            rule = "stored row by row (numpy.ascontiguousarray before saving)"
            raise GraphFormatError(key, rule, "column by column")

    def _number_of_types(self, archive: NpzArchive, key: str) -> int:
        with contextlib.closing(archive.stream(key, ndim=(1,), kinds="iu")) as types:
            self._check_rows(key, types)
            most, left = -1, self.num_edges
            while left:
                some = types.take(min(left, 1 << 22))
                if some.min() < 0:
                    raise GraphFormatError(key, "types are 0 or more", int(some.min()))
                most, left = max(most, int(some.max())), left - len(some)
        self._limits.check_bytes(key, 4 * (most + 1))
        return most + 1


def _ends(archive: NpzArchive) -> ArrayStream:
    return archive.stream("edge_index", ndim=(2,), kinds="iu")

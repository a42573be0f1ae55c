"""First pass over the edges: read and check pieces, and write each as a sorted run of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from gtjax.core.progress import Progress
from gtjax.datasets.conversion.edge_source import (
    MOST_NAMED,
    Edges,
    EdgeSource,
    MalformedRowsError,
    Piece,
)
from gtjax.datasets.conversion.ends import AsTheyAre
from gtjax.datasets.conversion.in_threads import in_threads
from gtjax.datasets.conversion.keys import keys_of, receivers_of, senders_of
from gtjax.datasets.conversion.sorted_runs import map_keys, write_keys
from gtjax.datasets.conversion.workplace import Workplace, syncs

_BYTES_A_RECORD = 64  # that sorting takes, at most
_BYTES_A_PIECE = 4  # of the input, for every record that is sorted at once
FAST = 1_400_000  # records: larger buffers come from the system anew each time, which costs more
MOST_RUNS = 1000  # if memory allows: a stretch is read in as many pieces as there are runs
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Sizing:
    """How much is in memory at once."""

    workers: int
    records: int
    """That one worker sorts."""

    @staticmethod
    def of(memory_bytes: float, workers: int, edge_features: int, input_bytes: int) -> Sizing:
        """For at most so much memory: few enough runs, and no more memory than that takes."""
        each = _BYTES_A_RECORD + 12 * edge_features
        most = int(memory_bytes / (workers + 1) / each)
        few_runs = input_bytes // (_BYTES_A_PIECE * MOST_RUNS)
        return Sizing(workers, max(1000, min(most, max(FAST, few_runs))))

    @property
    def piece_bytes(self) -> int:
        """Of the input; a line of text is seldom shorter than 8 bytes, and makes two records."""
        return _BYTES_A_PIECE * self.records


class Ends(Protocol):
    """See `ends`."""

    def numbers(self, ids: np.ndarray, field: str, name_row: Callable[[int], str]) -> np.ndarray:
        """The numbers of the nodes with these ids."""
        ...


class _Written(NamedTuple):
    number: int
    edges: int
    span: int


def run_path(work: Path, number: int) -> Path:
    """Where the keys of a run are."""
    return work / f"in-{number:06d}.keys"


def features_path(work: Path, number: int) -> Path:
    """Where the edge features of a run are, in the order of its keys."""
    return work / f"in-{number:06d}.x"


def write_runs(
    place: Workplace,
    source: EdgeSource,
    ends: Ends,
    sizing: Sizing,
    *,
    symmetrise: bool,
    progress: Progress,
) -> None:
    """Write what is missing of the runs; the state has "runs", "position", "rows" and "span"."""
    state = place.state.setdefault("edges", {"runs": 0, "rows": 0, "span": 0, "position": None})
    work, done = place.work, state["runs"]
    for path in work.glob("in-*"):
        if int(path.stem.removeprefix("in-")) >= done:
            path.unlink()
    if isinstance(ends, AsTheyAre):
        for number in range(done):  # a crash of the machine may have lost notes
            for keys in _blocks(map_keys(run_path(work, number))):
                ends.note(senders_of(keys))
                ends.note(receivers_of(keys))

    def write(item: tuple[int, Piece]) -> _Written | MalformedRowsError:
        number, piece = item
        try:
            edges = piece.read()
            senders_e = ends.numbers(edges.senders_e, "source", edges.name_row)
            receivers_e = ends.numbers(edges.receivers_e, "target", edges.name_row)
        except MalformedRowsError as error:
            return error
        _write_run(work, number, edges, senders_e, receivers_e, symmetrise=symmetrise)
        span = 1 + max(int(senders_e.max(initial=-1)), int(receivers_e.max(initial=-1)))
        return _Written(number, len(senders_e), span)

    pieces = source.pieces(state["position"], sizing.piece_bytes)
    malformed: MalformedRowsError | None = None
    unsynced: list[Path] = []
    for (number, piece), found in in_threads(write, enumerate(pieces, start=done), sizing.workers):
        if isinstance(found, MalformedRowsError):
            malformed = found if malformed is None else _both(malformed, found)
            if len(malformed.rows) >= MOST_NAMED:
                break
        if malformed is not None or isinstance(found, MalformedRowsError):
            continue  # to the end, so that all malformed rows are named
        unsynced += [run_path(work, number)]
        if source.num_edge_features:
            unsynced += [features_path(work, number)]
        state = {
            "runs": number + 1,
            "rows": state["rows"] + found.edges,
            "span": max(state["span"], found.span),
            "position": piece.position,
        }
        progress(piece.share, f"read {state['rows']:,} edges")
        if place.is_due():
            place.commit(*syncs(unsynced), soon=True, edges=state)
            unsynced = []
    if malformed is not None:
        raise malformed
    flush = (ends.flush,) if isinstance(ends, AsTheyAre) else ()
    place.commit(*syncs(unsynced), *flush, edges=state | {"done": True})


def _both(first: MalformedRowsError, second: MalformedRowsError) -> MalformedRowsError:
    rows = first.rows + second.rows
    more = first.more + second.more + max(0, len(rows) - MOST_NAMED)
    both = MalformedRowsError(first.field, first.rule, rows[:MOST_NAMED], more)
    both.file = first.file
    return both


def _write_run(
    work: Path,
    number: int,
    edges: Edges,
    senders_e: np.ndarray,
    receivers_e: np.ndarray,
    *,
    symmetrise: bool,
) -> None:
    keys = keys_of(senders_e, receivers_e, candidate=False)
    rows: Any = None if edges.edge_x_ef is None else np.arange(len(keys))
    if symmetrise:
        proper_e = np.flatnonzero(senders_e != receivers_e)
        reverse = keys_of(receivers_e[proper_e], senders_e[proper_e], candidate=True)
        keys = np.concatenate([keys, reverse])
        rows = None if rows is None else np.concatenate([rows, proper_e])
        del reverse
    if edges.edge_x_ef is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        with features_path(work, number).open("wb") as stream:
            x_ef = np.ascontiguousarray(edges.edge_x_ef[rows[order]], np.float32)
            stream.write(x_ef.reshape(-1).view(np.uint8).data)
    write_keys(run_path(work, number), keys)


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    return (array[start : start + _BLOCK] for start in range(0, len(array), _BLOCK))

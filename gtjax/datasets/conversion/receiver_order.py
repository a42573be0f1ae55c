"""Second pass: merge the runs by receiver, decide on candidates, and write the in-edges.

What comes out is split by sender on the way, into runs for the third pass (`sender_order`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtjax.core.growing_array import GrowingArray, flushed
from gtjax.core.progress import Progress
from gtjax.datasets.conversion.edge_runs import Sizing, features_path, run_path
from gtjax.datasets.conversion.ends import AllOf, Present
from gtjax.datasets.conversion.in_threads import in_threads
from gtjax.datasets.conversion.keys import (
    first_of_receiver,
    is_candidate,
    keys_of,
    receivers_of,
    senders_of,
    wanted,
)
from gtjax.datasets.conversion.offsets import OffsetsFile
from gtjax.datasets.conversion.sender_order import out_run_paths, write_out_run
from gtjax.datasets.conversion.sorted_runs import map_keys, read_piece, sampled, splitters
from gtjax.datasets.conversion.workplace import Workplace, syncs
from gtjax.graph.stored import EDGE_X, OFFSETS, SENDERS


class _Stretch(NamedTuple):
    """Some edges in their final order."""

    senders_e: np.ndarray
    receivers_e: np.ndarray
    edge_x_ef: np.ndarray | None
    reverses: int
    self_loops: int


class _Bounds(NamedTuple):
    """Which keys of which run stand between which splitters."""

    keys: np.ndarray
    of_run: np.ndarray  # [runs, splitters + 2]


def write_in_edges(
    place: Workplace,
    nodes: AllOf | Present,
    sizing: Sizing,
    *,
    self_loops: bool,
    distinct: bool,
    edge_features: int,
    progress: Progress,
) -> None:
    """Write what is missing of the in-edges.

    The state has "stretches", the edges in each, "offsets", and what was added.
    """
    empty = {"stretches": [], "offsets": 0, "reverses": 0, "self_loops": 0}
    state: dict[str, Any] = place.state.setdefault("receivers", empty)
    work = place.work
    (place.folder / SENDERS).parent.mkdir(exist_ok=True)
    bounds = _bounds(work, place.state["edges"]["runs"], nodes, sizing)
    count = len(bounds.keys) + 1
    done, edges = len(state["stretches"]), sum(state["stretches"])
    for path in work.glob("out-*"):
        if int(path.stem.removeprefix("out-")) >= done:
            path.unlink()
    senders = GrowingArray(place.folder / SENDERS, np.int32, rows=edges)
    offsets = OffsetsFile(place.folder / OFFSETS, state["offsets"], edges)
    files = [senders, offsets.file]
    edge_x = None
    if edge_features:
        edge_x = GrowingArray(place.folder / EDGE_X, np.float32, (edge_features,), edges)
        files.append(edge_x)

    def merge(number: int) -> _Stretch:
        stretch = _merged(
            work, bounds, number, nodes, self_loops, distinct=distinct, edge_features=edge_features
        )
        write_out_run(work, number, stretch.senders_e, stretch.receivers_e)
        return stretch

    unsynced: list[Path] = []
    with contextlib.ExitStack() as closed:
        for file in files:
            closed.callback(file.close)
        closed.callback(place.wait)  # before they are closed
        for number, found in in_threads(merge, range(done, count), sizing.workers):
            senders.append(found.senders_e)
            offsets.add(found.receivers_e)
            if edge_x is not None:
                assert found.edge_x_ef is not None
                edge_x.append(found.edge_x_ef)
            unsynced += out_run_paths(work, number)
            state = {
                "stretches": [*state["stretches"], len(found.senders_e)],
                "offsets": offsets.written,
                "reverses": state["reverses"] + found.reverses,
                "self_loops": state["self_loops"] + found.self_loops,
            }
            progress((number + 1) / count, f"sorted {senders.rows:,} edges by receiver")
            if place.is_due():
                place.commit(*flushed(files), *syncs(unsynced), soon=True, receivers=state)
                unsynced = []
        place.wait()
        offsets.close_rows(nodes.num_nodes)
        for file in files:
            file.finish()
        place.commit(*syncs(unsynced), receivers=state | {"done": True})


def _bounds(work: Path, runs: int, nodes: AllOf | Present, sizing: Sizing) -> _Bounds:
    # One run at a time is mapped: each takes a handle of the system, of which there are few.
    found = [sampled(map_keys(run_path(work, number))) for number in range(runs)]
    samples = np.concatenate([keys for keys, _ in found] or [np.zeros(0, np.uint64)])
    weights = np.concatenate([count for _, count in found] or [np.zeros(0, np.int64)])
    # Never between two edges with the same ends, and never over too many rows.
    chosen = splitters([samples & ~np.uint64(1)], weights, sizing.records)[0]
    rows = np.arange(sizing.records, nodes.span, sizing.records)
    keys = np.unique(np.concatenate([chosen, first_of_receiver(rows)]))
    of_run = np.zeros((runs, len(keys) + 2), np.int64)
    for number in range(runs):
        run = map_keys(run_path(work, number))
        of_run[number, 1:-1], of_run[number, -1] = np.searchsorted(run, keys), len(run)
    return _Bounds(keys, of_run)


def _merged(
    work: Path,
    bounds: _Bounds,
    number: int,
    nodes: AllOf | Present,
    self_loops: bool,
    *,
    distinct: bool,
    edge_features: int,
) -> _Stretch:
    places = bounds.of_run[:, number : number + 2].tolist()
    parts = [read_piece(run_path(work, run), start, end) for run, (start, end) in enumerate(places)]
    if self_loops:
        parts.append(_loops(bounds.keys, number, nodes))
    keys = np.concatenate(parts or [np.zeros(0, np.uint64)])
    loops = len(parts[-1]) if self_loops else 0
    del parts
    order = None
    if edge_features:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
    else:
        keys.sort()
    stays_e = wanted(keys, distinct=distinct)
    if not stays_e.all():
        keys = keys[stays_e]
        order = None if order is None else order[stays_e]
    senders_e, receivers_e = senders_of(keys), receivers_of(keys)
    added_e = is_candidate(keys)
    loops_added = int(np.count_nonzero(added_e & (senders_e == receivers_e)))
    edge_x_ef = None
    if order is not None:
        edge_x_ef = _features(work, places, edge_features, loops)[order]
    return _Stretch(
        nodes.numbers(senders_e).astype(np.int32),
        nodes.numbers(receivers_e).astype(np.int32),
        edge_x_ef,
        int(np.count_nonzero(added_e)) - loops_added,
        loops_added,
    )


def _features(work: Path, places: list[list[int]], width: int, loops: int) -> np.ndarray:
    """The rows of features of the pieces, and zeros for self-loops."""
    parts = [
        read_piece(features_path(work, run), width * start, width * end, np.float32)
        for run, (start, end) in enumerate(places)
    ]
    parts.append(np.zeros(width * loops, np.float32))
    return np.concatenate(parts).reshape(-1, width)


def _loops(keys: np.ndarray, number: int, nodes: AllOf | Present) -> np.ndarray:
    """The self-loops, as candidates, that stand between two splitters."""
    start = int(receivers_of(keys[number - 1 : number])[0]) if number else 0
    end = int(receivers_of(keys[number : number + 1])[0]) + 1 if number < len(keys) else nodes.span
    ids = nodes.ids(start, end)
    loops = keys_of(ids, ids, candidate=True)
    if number:
        loops = loops[loops >= keys[number - 1]]
    return loops[loops < keys[number]] if number < len(keys) else loops

"""Third pass: the same edges by sender, each with its id, which is its position by receiver.

A run holds a stretch of the in-edges, sorted by sender and then by position: keys of 32 bits for
the sender and 32 for the place within the stretch, and the receivers beside them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gtjax.core.growing_array import GrowingArray, flushed
from gtjax.core.progress import Progress
from gtjax.datasets.conversion.edge_runs import Sizing
from gtjax.datasets.conversion.in_threads import in_threads
from gtjax.datasets.conversion.offsets import OffsetsFile
from gtjax.datasets.conversion.sorted_runs import (
    map_keys,
    read_piece,
    sampled,
    splitters,
    write_keys,
)
from gtjax.datasets.conversion.workplace import Workplace
from gtjax.graph.stored import EDGE_IDS, OUT_OFFSETS, RECEIVERS, index_type

_SENDER, _PLACE = np.uint64(32), np.uint64(2**32 - 1)


class _Stretch(NamedTuple):
    senders_e: np.ndarray
    receivers_e: np.ndarray
    edge_ids_e: np.ndarray


def out_run_paths(work: Path, number: int) -> list[Path]:
    """Where the keys and the receivers of a run are."""
    return [work / f"out-{number:06d}.{what}" for what in ("keys", "receivers")]


def write_out_run(work: Path, number: int, senders_e: np.ndarray, receivers_e: np.ndarray) -> None:
    """Sort a stretch of the in-edges by sender."""
    keys = senders_e.astype(np.uint64)
    keys <<= _SENDER
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    keys_path, receivers_path = out_run_paths(work, number)
    write_keys(keys_path, keys)
    keys &= _PLACE
    with receivers_path.open("wb") as stream:
        stream.write(receivers_e[keys.view(np.int64)].view(np.uint8).data)


def write_out_edges(place: Workplace, num_nodes: int, sizing: Sizing, progress: Progress) -> None:
    """Write what is missing of the out-edges; the state has "done", "edges" and "offsets"."""
    state: dict[str, Any] = place.state.setdefault(
        "senders", {"stretches": 0, "edges": 0, "offsets": 0}
    )
    work, lengths = place.work, place.state["receivers"]["stretches"]
    bases = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    num_edges = int(bases[-1])
    (place.folder / RECEIVERS).parent.mkdir(exist_ok=True)
    of_run, first_senders = _bounds(work, bases, sizing)
    count = of_run.shape[1] - 1
    edges = state["edges"]
    receivers = GrowingArray(place.folder / RECEIVERS, np.int32, rows=edges)
    ids = GrowingArray(place.folder / EDGE_IDS, index_type(num_edges), rows=edges)
    offsets = OffsetsFile(place.folder / OUT_OFFSETS, state["offsets"], edges)

    def merge(number: int) -> _Stretch:
        return _merged(work, of_run[:, number : number + 2], bases, first_senders[number])

    files = (receivers, ids, offsets.file)
    with contextlib.ExitStack() as closed:
        for file in files:
            closed.callback(file.close)
        closed.callback(place.wait)  # before they are closed
        for number, found in in_threads(merge, range(state["stretches"], count), sizing.workers):
            receivers.append(found.receivers_e)
            ids.append(found.edge_ids_e)
            offsets.add(found.senders_e)
            progress((number + 1) / count, f"sorted {receivers.rows:,} edges by sender")
            if place.is_due():
                known = {"edges": receivers.rows, "offsets": offsets.written}
                state = {"stretches": number + 1, **known}
                place.commit(*flushed(files), soon=True, senders=state)
        place.wait()
        offsets.close_rows(num_nodes)
        for file in files:
            file.finish()
        place.commit(senders={"done": True})


def _bounds(work: Path, bases: np.ndarray, sizing: Sizing) -> tuple[np.ndarray, np.ndarray]:
    """Which keys of each run [runs, stretches + 1] are whose, and the first sender of each."""
    runs = len(bases) - 1
    found = [sampled(map_keys(out_run_paths(work, number)[0])) for number in range(runs)]
    senders = np.concatenate([(keys >> _SENDER).astype(np.int64) for keys, _ in found])
    places = np.concatenate(
        [
            (keys & _PLACE).astype(np.int64) + base
            for (keys, _), base in zip(found, bases[:-1], strict=True)
        ]
    )
    weights = np.concatenate([count for _, count in found])
    senders, places = splitters([senders, places], weights, sizing.records)
    of_run = np.zeros((runs, len(senders) + 2), np.int64)
    for number in range(runs):
        keys = map_keys(out_run_paths(work, number)[0])
        # Positions of other stretches come before all of this one, or behind.
        within = np.clip(places - bases[number], 0, len(keys)).astype(np.uint64)
        of_run[number, 1:-1] = np.searchsorted(keys, senders.astype(np.uint64) << _SENDER | within)
        of_run[number, -1] = len(keys)
    return of_run, np.concatenate([[0], senders])


def _merged(work: Path, places: np.ndarray, bases: np.ndarray, first: int) -> _Stretch:
    keys, receivers, ids = [], [], []
    for run, (start, end) in enumerate(places.tolist()):
        if start == end:
            continue
        keys_path, receivers_path = out_run_paths(work, run)
        some = read_piece(keys_path, start, end)
        receivers.append(read_piece(receivers_path, start, end, np.int32))
        ids.append((some & _PLACE).view(np.int64) + bases[run])
        some >>= _SENDER
        keys.append(some)
    none = np.zeros(0, np.int64)
    if not keys:
        return _Stretch(none, none.astype(np.int32), none)
    merged = np.concatenate(keys)
    del keys
    merged -= np.uint64(first)
    merged <<= _SENDER
    merged |= np.arange(len(merged), dtype=np.uint64)
    merged.sort()
    order = (merged & _PLACE).view(np.int64)
    receivers_e, ids_e = np.concatenate(receivers)[order], np.concatenate(ids)[order]
    merged >>= _SENDER
    return _Stretch(merged.view(np.int64) + first, receivers_e, ids_e)

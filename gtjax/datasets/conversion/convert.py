"""`convert`: from data of any size to the folder of a stored graph.

Edges are sorted outside of memory in three passes (`edge_runs`, `receiver_order`, `sender_order`),
each of which goes on where it was after a crash (`workplace`). Disk: some 25 bytes an edge while it
sorts and 12 an edge for what stays, counted after reverse edges and self-loops were added.

Where the format has no reader for streams, or its ids are text, the graph is read into memory and
goes the same way from there; that is said.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError, in_file, one_of
from gtjax.core.hashed_files import hash_of_json
from gtjax.core.progress import Progress, ignore_progress, say
from gtjax.datasets.conversion.edge_list_stream import known_ids
from gtjax.datasets.conversion.edge_runs import Sizing, write_runs
from gtjax.datasets.conversion.edge_source import GraphEdges
from gtjax.datasets.conversion.ends import (
    MOST_NODES,
    AllOf,
    AsTheyAre,
    KnownIds,
    Numbered,
    Present,
    WideIdsError,
    count_present,
)
from gtjax.datasets.conversion.in_threads import in_threads
from gtjax.datasets.conversion.node_files import (
    FORMS,
    row_blocks,
    write_array,
    write_bare_nodes,
    write_nodes_of,
)
from gtjax.datasets.conversion.receiver_order import write_in_edges
from gtjax.datasets.conversion.sender_order import write_out_edges
from gtjax.datasets.conversion.stream import Stream
from gtjax.datasets.conversion.streams import stream_of
from gtjax.datasets.conversion.workplace import JOURNAL, Workplace, sync_folder
from gtjax.datasets.limits import GIB, Limits
from gtjax.datasets.loading import load, located
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import Graph, required_graph
from gtjax.graph.stored import FORMAT, StoredGraph, is_stored_graph
from gtjax.remote.address import address_of
from gtjax.remote.folder import cached, check_new, upload_folder

MOST_NAMES_BYTES = 4 * GIB  # of what nodes are called, as when the data is read into memory
_BLOCK = 1 << 20
# How much of the time each phase takes, roughly.
_NODES, _EDGES, _RECEIVERS, _SENDERS = 0.05, 0.4, 0.65, 0.95


@dataclass(frozen=True)
class ConvertOptions:
    """How data becomes a stored graph."""

    symmetrise: bool = True
    """Add the reverse of every edge that lacks it, which cannot be done later without memory."""
    self_loops: bool = True
    """Add the edge from every node to itself where there is none."""
    distinct: bool = False
    """Keep one of several edges with the same ends."""
    features: str = "auto"
    """auto (as the data has them), float32, float16, int8 (with a scale a row) or sparse."""
    split: int = 0
    """Which of several stored splits, or which draw where none is stored."""
    seed: int = 0
    """Of generators and of drawn splits."""
    memory: float = 1.0
    """GiB that sorting may take, if there are very many edges. A table of nodes takes some 80 bytes
    a node beside it."""

    def __post_init__(self) -> None:
        one_of(dict.fromkeys(FORMS), self.features, "features")
        if not self.memory > 0:
            raise UserError(f"memory is in GiB, and more than 0; found {self.memory}")


def convert(
    data: str | Path | Graph,
    folder: str | Path,
    options: ConvertOptions | None = None,
    *,
    progress: Progress = ignore_progress,
    limits: Limits | None = None,
    cache_dir: str | Path | None = None,
) -> StoredGraph:
    """Write a graph to a new folder, as `gtjax.load` and `gtjax train --data` read it.

    Killed at any moment, it goes on where it was when it is called again with the same arguments;
    the folder appears under its name once it is complete.

    Args:
        data: Name of a data set, path, or graph.
        folder: Which is not there yet, or empty; or an address, such as s3://bucket/graph: then it
            is written to the cache folder first, and stored.
        options: What is added, and how features are stored.
        progress: Told how much is done.
        limits: Caps on what untrusted files may use; by default none for what is a stream.
        cache_dir: Where downloads are kept.
    """
    options, address = options or ConvertOptions(), address_of(folder)
    _check_target(folder)
    reading = ReadOptions(options.split, options.seed, limits or Limits(max_bytes=1 << 60))
    stream = _stream(data, options, reading, limits, cache_dir)
    source = _source(stream, options)
    if address is None:
        _write(Path(folder), stream, options, source, progress)
        return StoredGraph.open(folder)
    local = cached(address, f"converted-{source[:16]}")
    if not is_stored_graph(local):  # else it was, and storing it was cut off
        _write(local, stream, options, source, _part(progress, 0, 0.5))
    upload_folder(FORMAT, local, address, _part(progress, 0.5, 1.0))
    shutil.rmtree(local, ignore_errors=True)
    return StoredGraph.open(address)


def _write(
    folder: Path,
    stream: Stream | _Memory,
    options: ConvertOptions,
    source: str,
    progress: Progress,
) -> None:
    """To a folder of this machine."""
    place = Workplace(folder, source)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with place.opened():
            if place.resumed:
                say(f"going on with {place.folder}, which was left")
            try:
                _Conversion(place, stream, options).run(progress)
            except UserError:  # which the same data would give again
                place.remove()
                raise
    except OSError as error:
        raise UserError(
            f"cannot write to {place.folder}: {error.strerror or error}. What is done stays there: "
            f"the same command goes on with it, once there is room."
        ) from error


@dataclass(frozen=True)
class _Memory:
    """A graph in memory in the place of files."""

    graph: Graph


def _stream(
    data: Any,
    options: ConvertOptions,
    reading: ReadOptions,
    limits: Limits | None,
    cache_dir: str | Path | None,
) -> Stream | _Memory:
    """What is to be converted, as a stream if that can be; says which."""
    if isinstance(data, Graph | StoredGraph):
        return _Memory(_one_graph(required_graph(data, "convert")))
    path = located(data, reading.limits, cache_dir)
    why = "it is made on the spot"
    if path is not None:
        if is_stored_graph(path):
            raise UserError(f"{path} is a stored graph already: gtjax.load reads it.")
        with in_file(path):
            found = stream_of(path, reading, options.features)
        if isinstance(found, Stream):
            say(f"{found.name}: read as a stream")
            return found
        why = found
    graph = load(data, split=options.split, seed=options.seed, limits=limits, cache_dir=cache_dir)
    say(f"{graph.name}: read into memory first, since {why}")
    return _Memory(_one_graph(graph))


def _one_graph(graph: Graph) -> Graph:
    if graph.graphs is not None or graph.links is not None:
        what = "many graphs" if graph.graphs is not None else "a graph with links held out"
        raise UserError(
            f"a stored graph is one graph; {graph.name} is {what}. gtjax.save_npz keeps it."
        )
    return graph


def _check_target(folder: str | Path) -> None:
    if address_of(folder) is None and is_stored_graph(Path(folder)):
        raise UserError(f"{folder} holds a stored graph. Remove it, or name another folder.")
    check_new(FORMAT, folder)


def _source(stream: Stream | _Memory, options: ConvertOptions) -> str:
    """Names what is converted and how: another is not gone on with."""
    known = {name: value for name, value in dataclasses.asdict(options).items() if name != "memory"}
    if isinstance(stream, _Memory):
        return hash_of_json([stream.graph.fingerprint, known])
    stats = [(str(path.resolve()), path.stat()) for path in stream.files]
    return hash_of_json([[p, s.st_size, s.st_mtime_ns] for p, s in stats] + [known])


class _Conversion:
    """All phases, of which some may be done already."""

    def __init__(self, place: Workplace, stream: Stream | _Memory, options: ConvertOptions):
        self.place, self.options = place, options
        self._source = lambda given=stream: _source(given, options)
        if isinstance(stream, _Memory):
            graph = stream.graph
            stream = Stream(
                graph.name,
                [],
                GraphEdges(graph),
                lambda folder, work, progress: (
                    write_nodes_of(folder, graph, options.features) | {"ids": "numbers"}
                ),
            )
        self.stream = stream
        self.symmetrise = options.symmetrise or stream.stored_once
        workers = max(1, min(4, os.cpu_count() or 1))
        edge_features = stream.edges.num_edge_features
        memory, size = options.memory * GIB, stream.edges.num_bytes
        self.sizing = Sizing.of(memory, workers, edge_features, size)
        # What a part of the work depends on, so that it cannot be gone on with otherwise.
        records = place.state.get("records")
        if records is not None:
            self.sizing = dataclasses.replace(self.sizing, records=records)

    def run(self, progress: Progress) -> None:
        """Do what is not done yet."""
        place = self.place
        if place.state.get("sealed"):
            self._publish()
            return
        if "records" not in place.state:
            place.commit(records=self.sizing.records)
        if self.stream.write_nodes is not None and "nodes" not in place.state:
            facts = self.stream.write_nodes(place.folder, place.work, _part(progress, 0, _NODES))
            self._check_count(facts["nodes"])
            place.commit(nodes=facts)
        if not self._is_done("edges"):
            reading = _part(progress, _NODES, _EDGES)
            with in_file(self.stream.files[0] if self.stream.files else self.stream.name):
                self._read_edges(reading)
        nodes = self._nodes()
        if not self._is_done("receivers"):
            write_in_edges(
                place,
                nodes,
                self.sizing,
                self_loops=self.options.self_loops,
                distinct=self.options.distinct,
                edge_features=self.stream.edges.num_edge_features,
                progress=_part(progress, _EDGES, _RECEIVERS),
            )
        self._remove("in-*")
        if not self._is_done("senders"):
            write_out_edges(
                place, nodes.num_nodes, self.sizing, _part(progress, _RECEIVERS, _SENDERS)
            )
        self._remove("out-*")
        if "nodes" not in place.state:
            place.commit(nodes=self._write_bare_nodes(nodes))
        if self._source() != place.source:
            raise UserError(
                f"{self.stream.files[0]} has changed while it was converted. Convert it again."
            )
        (place.folder / FORMAT.manifest).unlink(missing_ok=True)
        paths = (path for path in place.folder.rglob("*.npy") if path.parent != place.work)
        FORMAT.seal(place.folder, paths, {"graph": self._facts()}, _part(progress, _SENDERS, 1.0))
        folders = {place.folder, *(path.parent for path in place.folder.rglob("*.npy"))}
        place.commit(*(lambda each=each: sync_folder(each) for each in folders), sealed=True)
        self._publish()

    def _read_edges(self, progress: Progress) -> None:
        place = self.place
        try:
            self._write_runs(progress)
        except WideIdsError:
            place.start_over()
            place.commit(records=self.sizing.records, wide=self._write_ids(progress))
            self._write_runs(progress)
        self._check_edges()

    def _is_done(self, phase: str) -> bool:
        return self.place.state.get(phase, {}).get("done", False)

    def _remove(self, pattern: str) -> None:
        for path in self.place.work.glob(pattern):
            path.unlink()

    def _write_runs(self, progress: Progress) -> None:
        place, known = self.place, self.place.state.get("nodes")
        if known is None and "wide" not in place.state:
            ends: Any = AsTheyAre(place.work / "present.bin")
        elif known is None:
            ends = KnownIds(self._wide_ids(), None)
        elif known["ids"] == "numbers":
            ends = Numbered(known["nodes"])
        else:
            ends = KnownIds(*known_ids(place.work))
        write_runs(
            place,
            self.stream.edges,
            ends,
            self.sizing,
            symmetrise=self.symmetrise,
            progress=progress,
        )

    def _write_ids(self, progress: Progress) -> dict[str, Any]:
        """The ids that occur, where they do not fit a key: 8 bytes each, thrice while it looks."""
        ids = np.zeros(0, np.int64)
        pieces = self.stream.edges.pieces(None, self.sizing.piece_bytes)

        def distinct(piece: Any) -> np.ndarray:
            edges = piece.read()
            return np.unique(np.concatenate([edges.senders_e, edges.receivers_e]))

        for piece, some in in_threads(distinct, pieces, self.sizing.workers):
            ids = np.union1d(ids, some)
            progress(0.5 * piece.share, f"{len(ids):,} ids so far")
        self._check_count(len(ids))
        write_array(self.place.work / "ids.npy", ids)
        return {"nodes": len(ids)}

    def _wide_ids(self) -> np.ndarray:
        return np.load(self.place.work / "ids.npy", mmap_mode="r").view(np.ndarray)

    def _nodes(self) -> AllOf | Present:
        """The nodes, once the edges are known."""
        state = self.place.state
        if "nodes" in state and "span" not in state["nodes"]:
            return AllOf(state["nodes"]["nodes"])
        if "wide" in state:
            return AllOf(state["wide"]["nodes"])
        span = state["edges"]["span"]
        return Present(self.place.work, span, count_present(self.place.work, span))

    def _write_bare_nodes(self, nodes: AllOf | Present) -> dict[str, Any]:
        count = nodes.num_nodes
        if "wide" in self.place.state:
            ids = self._wide_ids()
            longest = max(len(str(ids[0])), len(str(ids[-1])))
            blocks: Iterator[np.ndarray] | None = (ids[rows] for rows in row_blocks(count, _BLOCK))
        elif nodes.span == count:
            longest, blocks = 0, None
        else:
            longest = len(str(nodes.span - 1))
            blocks = (nodes.ids(rows.start, rows.stop) for rows in row_blocks(nodes.span, _BLOCK))
        size = 4 * longest * count
        if size > MOST_NAMES_BYTES:
            say(
                f"ids are not kept as names: with the longest, of {longest}, they take {size} bytes"
            )
            blocks = None
        facts = write_bare_nodes(self.place.folder, count, blocks, longest)
        return facts | {"span": nodes.span}

    def _check_edges(self) -> None:
        rows, expected = self.place.state["edges"]["rows"], self.stream.expected_edges
        if "nodes" not in self.place.state and not rows:
            raise GraphFormatError("rows", "an edge list without a table of nodes has edges", 0)
        if expected is not None and rows != expected:
            rule = f"{expected} edges, as num-edge-list says"
            raise GraphFormatError("edge.csv.gz", rule, rows)

    def _check_count(self, nodes: int) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise GraphFormatError("nodes", f"a stored graph has 1 to {MOST_NODES} nodes", nodes)

    def _facts(self) -> dict[str, Any]:
        state, options = self.place.state, self.options
        nodes = {name: state["nodes"][name] for name in ("nodes", "features", "classes", "names")}
        receivers = state["receivers"]
        return {
            **nodes,
            "name": self.stream.name,
            "edges": sum(receivers["stretches"]),
            "rows_of_edges": state["edges"]["rows"],
            "symmetrise": self.symmetrise,
            "self_loops": options.self_loops,
            "distinct": options.distinct,
            "split": options.split,
            "added": {
                # Reverses that the data itself means are no addition.
                "symmetrise": 0 if self.stream.stored_once else receivers["reverses"],
                "self_loops": receivers["self_loops"],
            },
        }

    def _publish(self) -> None:
        """Give the folder its name; what comes before can be repeated."""
        place = self.place
        target = place.target
        if target.is_dir():
            target.rmdir()  # it is empty: `_check_target` has seen to that
        for path in place.work.iterdir():
            if path.name != JOURNAL:
                path.unlink()
        place.folder.chmod(FORMAT.mode)
        place.folder.replace(target)
        sync_folder(target.parent)
        shutil.rmtree(target / place.work.name, ignore_errors=True)


def _part(progress: Progress, start: float, end: float) -> Progress:
    return lambda done, text: progress(start + (end - start) * done, text)

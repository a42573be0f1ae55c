"""A partition in a folder, so that each host reads its own parts of the graph and no others.

    FOLDER/partition.json        counts, CutStats, fingerprint of the graph, a hash of every file
    FOLDER/owner.npy             the part of every node
    FOLDER/part-00003/nodes.npy  numbers in the whole graph of the part's nodes, ascending; also
        senders, receivers, edge_ids   of the edges into them, by numbers in the whole graph, sorted
                                       by receiver
        x, labels, train, val, test    of its nodes
        edge_x                         of its edges

Arrays are plain .npy files and come back mapped into memory, not read. Every file is checked
against its hash when its part is first opened, which reads it once: what is truncated, changed or
missing is an error that names the file, never wrong numbers. Writing takes one copy of the graph on
disk; the folder appears under its name only once it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from gtjax.graph import SPLITS, Graph, UserError
from gtjax.graph.checked_files import (
    hash_of_file,
    is_taken,
    read_manifest,
    save_array,
    write_manifest,
    written_whole,
)
from gtjax.graph.csr import stable_order
from gtjax.graph.positional.progress import Progress, ignore_progress
from gtjax.partition.cut import CutStats
from gtjax.partition.partition import Partition

MANIFEST = "partition.json"
OWNER = "owner.npy"
FORMAT = "gtjax partition"
VERSION = 1
AGAIN = "Write the partition again with save_partition or `gtjax partition`."


@dataclass(frozen=True, eq=False)
class StoredPart:
    """What one part holds; arrays are mapped from disk, read-only."""

    nodes_n: np.ndarray
    senders_e: np.ndarray
    receivers_e: np.ndarray
    edge_ids_e: np.ndarray
    x_nf: np.ndarray
    labels_n: np.ndarray
    split_n: Mapping[str, np.ndarray]
    edge_x_ef: np.ndarray | None


@dataclass(frozen=True, eq=False)
class StoredPartition:
    """A partition on disk; `part(p)` opens one part."""

    folder: Path
    graph_name: str
    graph_fingerprint: str
    cut: CutStats
    hashes: Mapping[str, str]
    _parts: dict[int, StoredPart] = field(default_factory=dict, repr=False)

    @property
    def num_parts(self) -> int:
        """Number of parts, empty ones included."""
        return self.cut.num_parts

    @cached_property
    def partition(self) -> Partition:
        """The owner of every node of the whole graph."""
        partition = Partition(self._open(OWNER), self.num_parts)
        if partition.sizes_p.tolist() != self.cut.nodes_p.tolist():
            raise UserError(f"{self.folder / OWNER} is not what {MANIFEST} counted. {AGAIN}")
        return partition

    def part(self, number: int) -> StoredPart:
        """One part's nodes and in-edges; checked against their hashes the first time."""
        if not 0 <= number < self.num_parts:
            raise UserError(
                f"{self.folder} holds parts 0..{self.num_parts - 1}; there is no part {number}."
            )
        if number not in self._parts:
            self._parts[number] = self._read_part(number)
        return self._parts[number]

    def _read_part(self, number: int) -> StoredPart:
        name = part_name(number)
        nodes, senders, receivers, edge_ids, x, labels = (
            self._open(f"{name}/{each}.npy")
            for each in ("nodes", "senders", "receivers", "edge_ids", "x", "labels")
        )
        found = (len(nodes), len(senders))
        counted = (int(self.cut.nodes_p[number]), int(self.cut.edges_p[number]))
        if found != counted:
            raise UserError(
                f"{self.folder / name} holds {found[0]} nodes and {found[1]} edges; "
                f"{MANIFEST} counted {counted[0]} and {counted[1]}. {AGAIN}"
            )
        splits = {
            split: self._open(f"{name}/{split}.npy")
            for split in SPLITS
            if f"{name}/{split}.npy" in self.hashes
        }
        has_edge_x = f"{name}/edge_x.npy" in self.hashes
        edge_x = self._open(f"{name}/edge_x.npy") if has_edge_x else None
        return StoredPart(nodes, senders, receivers, edge_ids, x, labels, splits, edge_x)

    def _open(self, name: str) -> np.ndarray:
        path = self.folder / name
        try:
            found = hash_of_file(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}. {AGAIN}") from error
        if found != self.hashes.get(name):
            raise UserError(f"{path} is damaged: its hash is not that in {MANIFEST}. {AGAIN}")
        return np.load(path, mmap_mode="r", allow_pickle=False)


def save_partition(
    folder: str | Path, graph: Graph, partition: Partition, *, progress: Progress | None = None
) -> None:
    """Write a graph in parts; `folder` is new, or empty."""
    progress = progress or ignore_progress
    partition.check_fits(graph)
    check_new_folder(folder)
    with written_whole(Path(folder), mode=0o755) as temporary:
        cut = partition.cut(graph)
        hashes = {OWNER: save_array(temporary / OWNER, partition.owner_n)}
        for number, arrays in enumerate(_parts(graph, partition)):
            progress(number / partition.num_parts, f"writing part {number}")
            name = part_name(number)
            (temporary / name).mkdir()
            for each, array in arrays.items():
                hashes[f"{name}/{each}.npy"] = save_array(temporary / name / f"{each}.npy", array)
        _write_manifest(temporary / MANIFEST, graph, cut, hashes)
    progress(1.0, "partition written")


def check_new_folder(folder: str | Path) -> None:
    """A partition never takes the place of something else."""
    if is_taken(Path(folder)):
        raise UserError(f"a partition is written to a new folder; {folder} is there. Name another.")


def open_partition(folder: str | Path) -> StoredPartition:
    """Open what `save_partition` wrote; arrays are checked and mapped part by part, later."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file():
        raise UserError(
            f"{folder} is not the folder of a partition: it has no {MANIFEST}. "
            "Name a folder that save_partition wrote."
        )
    try:
        content = read_manifest(folder / MANIFEST, FORMAT, VERSION)
    except UserError as error:
        raise UserError(f"{error} {AGAIN}") from error
    return StoredPartition(
        folder,
        content["graph"]["name"],
        content["graph"]["fingerprint"],
        CutStats.from_json(content["cut"]),
        content["files"],
    )


def read_owners(path: str | Path, num_parts: int) -> Partition:
    """A partition that another program computed: a .npy file with the part of every node."""
    try:
        owner_n = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path} is not a .npy file of integers, one a node ({error}). Save it with numpy.save."
        ) from error
    if not isinstance(owner_n, np.ndarray):
        owner_n.close()
        raise UserError(f"{path} holds several arrays. Save one array with numpy.save.")
    return Partition(owner_n, num_parts)


def part_name(number: int) -> str:
    """The folder of a part."""
    return f"part-{number:05d}"


def _parts(graph: Graph, partition: Partition) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of each part by the names of their files."""
    owner_n, count = partition.owner_n, partition.num_parts
    nodes_n = stable_order(owner_n, count)
    rows_e = graph.by_receiver.edge_ids_e
    owner_e = owner_n[graph.receivers_e[rows_e]]
    edges_e = rows_e[stable_order(owner_e, count)]
    node_ends = np.cumsum(partition.sizes_p)
    edge_ends = np.cumsum(np.bincount(owner_e, minlength=count))
    for number in range(count):
        nodes = nodes_n[node_ends[number - 1] if number else 0 : node_ends[number]]
        edges = edges_e[edge_ends[number - 1] if number else 0 : edge_ends[number]]
        arrays = {
            "nodes": nodes,
            "senders": graph.senders_e[edges],
            "receivers": graph.receivers_e[edges],
            "edge_ids": edges,
            "x": graph.x_nf[nodes],
            "labels": graph.labels_n[nodes],
            **{name: mask_n[nodes] for name, mask_n in graph.split_n.items()},
        }
        if graph.edge_x_ef is not None:
            arrays["edge_x"] = graph.edge_x_ef[edges]
        yield arrays


def _write_manifest(path: Path, graph: Graph, cut: CutStats, hashes: dict[str, str]) -> None:
    content = {
        "format": FORMAT,
        "version": VERSION,
        "graph": {"name": graph.name, "fingerprint": graph.fingerprint},
        "cut": cut.to_json(),
        "files": hashes,
    }
    write_manifest(path, content)

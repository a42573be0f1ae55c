"""A partition in a folder, so that each host reads its own parts of the graph and no others.

    FOLDER/partition.json        counts, CutStats, fingerprint of the graph, a hash of every file
    FOLDER/owner.npy             the part of every node
    FOLDER/part-00003/nodes.npy  numbers in the whole graph of the part's nodes, ascending; also
        senders, receivers, edge_ids   of the edges into them, by numbers in the whole graph, sorted
                                       by receiver
        x, labels, train, val, test    of its nodes
        edge_x                         of its edges

Arrays come back mapped into memory, not read, but for once, when a part is first opened and its
files are checked; see `gtjax.core.hashed_folder`. Writing takes one copy of the graph on disk.
FOLDER may be an address, such as s3://bucket/parts: then the files of a part are fetched when it is
first opened, and those of other parts never are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderFormat, HashedFolder
from gtjax.core.progress import Progress, ignore_progress
from gtjax.graph import SPLITS, Graph
from gtjax.graph.csr import stable_order
from gtjax.partition.cut import CutStats
from gtjax.partition.partition import Partition
from gtjax.remote.folder import check_new, is_complete, open_folder, written_folder

OWNER = "owner.npy"
FORMAT = FolderFormat(
    name="gtjax partition",
    version=1,
    manifest="partition.json",
    remedy="Write the partition again with save_partition or `gtjax partition`.",
    mode=0o755,
)


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

    files: HashedFolder
    graph_name: str
    graph_fingerprint: str
    cut: CutStats
    _parts: dict[int, StoredPart] = field(default_factory=dict, repr=False)

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.files.path

    @property
    def num_parts(self) -> int:
        """Number of parts, empty ones included."""
        return self.cut.num_parts

    @cached_property
    def partition(self) -> Partition:
        """The owner of every node of the whole graph."""
        partition = Partition(self.files.array(OWNER), self.num_parts)
        if partition.sizes_p.tolist() != self.cut.nodes_p.tolist():
            with self.files.remedied():
                raise UserError(f"{self.folder / OWNER} is not what {FORMAT.manifest} counted.")
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
            self.files.array(f"{name}/{each}.npy")
            for each in ("nodes", "senders", "receivers", "edge_ids", "x", "labels")
        )
        found = (len(nodes), len(senders))
        counted = (int(self.cut.nodes_p[number]), int(self.cut.edges_p[number]))
        if found != counted:
            with self.files.remedied():
                raise UserError(
                    f"{self.folder / name} holds {found[0]} nodes and {found[1]} edges; "
                    f"{FORMAT.manifest} counted {counted[0]} and {counted[1]}."
                )
        splits = {
            split: self.files.array(f"{name}/{split}.npy")
            for split in SPLITS
            if f"{name}/{split}.npy" in self.files
        }
        has_edge_x = f"{name}/edge_x.npy" in self.files
        edge_x = self.files.array(f"{name}/edge_x.npy") if has_edge_x else None
        return StoredPart(nodes, senders, receivers, edge_ids, x, labels, splits, edge_x)


def save_partition(
    folder: str | Path, graph: Graph, partition: Partition, *, progress: Progress | None = None
) -> None:
    """Write a graph in parts; `folder` is new, or empty."""
    progress = progress or ignore_progress
    partition.check_fits(graph)
    with written_folder(FORMAT, folder) as to:
        to.content["graph"] = {"name": graph.name, "fingerprint": graph.fingerprint}
        to.content["cut"] = partition.cut(graph).to_json()
        to.array(OWNER, partition.owner_n)
        for number, arrays in enumerate(_parts(graph, partition)):
            progress(number / partition.num_parts, f"writing part {number}")
            for each, array in arrays.items():
                to.array(f"{part_name(number)}/{each}.npy", array)
    progress(1.0, "partition written")


def check_new_folder(folder: str | Path) -> None:
    """A partition never takes the place of something else."""
    check_new(FORMAT, folder)


def is_stored_partition(name: str) -> bool:
    """Whether this names a folder, or an address, that `save_partition` wrote; no plain word is."""
    return isinstance(name, str) and "/" in name and is_complete(FORMAT, name)


def open_partition(folder: str | Path) -> StoredPartition:
    """Open what `save_partition` wrote; arrays are checked and mapped part by part, later."""
    if not is_complete(FORMAT, folder):
        raise UserError(
            f"{folder} is not the folder of a partition: it has no {FORMAT.manifest}. "
            "Name a folder that save_partition wrote."
        )
    files = open_folder(FORMAT, folder)
    graph, cut = files.content["graph"], files.content["cut"]
    return StoredPartition(files, graph["name"], graph["fingerprint"], CutStats.from_json(cut))


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

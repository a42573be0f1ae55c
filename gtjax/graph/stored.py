"""`StoredGraph`: a graph in a folder of mapped arrays, for graphs larger than memory.

    graph.json                what it is: counts, names of classes and features, how it was
                              converted, and of every array its shape, type and hash
    by_receiver/offsets.npy   int64 [N + 1], and senders.npy int32 [E]: the in-edges of every node,
                              sorted by sender; an edge's id is its position here
    by_sender/offsets.npy     int64 [N + 1], receivers.npy int32 [E] and edge_ids.npy [E], int32 or
                              int64: the out-edges, and which edge each of them is
    x.npy                     [N, F] float32 or float16, or int8 with x_scale.npy [N]; or sparse
                              rows: x_offsets.npy, x_columns.npy, x_values.npy
    labels.npy                as in `Graph`; and train.npy, val.npy, test.npy bool [N],
                              edge_x.npy [E, K], node_names.npy, where there are such

`gtjax convert` writes it. Opening one takes milliseconds whatever its size: it reads the manifest,
looks at sizes and headers, and maps. Rows and edges are read from disk when they are asked for; the
system keeps in memory what it has room for. `verify` reads all of it, and holds it to its hashes.
Of one at an address, such as s3://bucket/graph, a file is fetched when it is first asked for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.hashed_files import hash_of_json, new_digest
from gtjax.core.hashed_folder import FolderFormat, HashedFolder
from gtjax.core.progress import Progress, ignore_progress
from gtjax.graph.csr import CSR, Positions
from gtjax.graph.graph import SPLITS, Graph
from gtjax.graph.names import Names
from gtjax.graph.splits import Shares, is_known, random_split_of
from gtjax.graph.stored_rows import ScaledRows, SparseRows
from gtjax.graph.validation import checked_splits
from gtjax.remote.folder import open_folder

FORMAT = FolderFormat(
    name="gtjax graph",
    version=1,
    manifest="graph.json",
    remedy="Write the folder again with `gtjax convert`.",
    mode=0o755,
)
OFFSETS, SENDERS = "by_receiver/offsets.npy", "by_receiver/senders.npy"
OUT_OFFSETS, RECEIVERS = "by_sender/offsets.npy", "by_sender/receivers.npy"
EDGE_IDS = "by_sender/edge_ids.npy"
X, X_SCALE = "x.npy", "x_scale.npy"
X_OFFSETS, X_COLUMNS, X_VALUES = "x_offsets.npy", "x_columns.npy", "x_values.npy"
LABELS, EDGE_X, NODE_NAMES = "labels.npy", "edge_x.npy", "node_names.npy"

# Bytes an edge that functions take beside the graph in memory; measured on a graph of 1.1 million
# edges, but for METIS, which the partitioners prefer up to 1e8 edges.
BESIDE = {"locality_order": 20, "fit": 32, "partition_graph": 100, "plan": 100}
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """A graph on disk, with the read-only surface of `Graph`; `in_memory` gives a plain one.

    Edges are sorted by receiver, then by sender, and an edge's id is its position in that order.
    There is no `receivers_e`: the receiver of an edge is the row that it stands in.
    """

    files: HashedFolder
    _masks: Mapping[str, np.ndarray] | None = None  # in the place of those that are stored

    @staticmethod
    def open(folder: str | Path) -> StoredGraph:
        """Open what `gtjax convert` wrote; reads the manifest, and looks at sizes and headers."""
        graph = StoredGraph(open_folder(FORMAT, folder))
        with graph.files.remedied():
            graph._check()
        return graph

    def __reduce__(self) -> tuple:
        # Another process opens the folder itself.
        masks = None if self._masks is None else dict(self._masks)
        return _reopened, (self.address, masks)

    def __repr__(self) -> str:
        kind = "tasks" if self.is_multilabel else "targets" if self.is_real else "classes"
        return (
            f"StoredGraph({self.name!r}, {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} {kind})"
        )

    def __getattr__(self, name: str) -> Any:
        if hasattr(Graph, name) or name == "receivers_e":
            raise AttributeError(
                f"a stored graph has no {name}, which takes all edges in memory: write "
                f"graph.in_memory().{name}"
            )
        raise AttributeError(f"StoredGraph has no attribute {name!r}")

    @property
    def folder(self) -> Path:
        """Where it is on this machine."""
        return self.files.path

    @property
    def address(self) -> str:
        """Where it can be opened from: in a store, or a full path."""
        return self.files.address or str(self.folder.resolve())

    @property
    def name(self) -> str:
        """What the graph is called."""
        return self._facts["name"]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return self._facts["nodes"]

    @property
    def num_edges(self) -> int:
        """Number of directed edges, E."""
        return self._facts["edges"]

    @property
    def num_features(self) -> int:
        """Width of the node features."""
        return self._facts["features"]

    @property
    def num_edge_features(self) -> int:
        """Width of the edge features, 0 where there are none."""
        return 0 if self.edge_x_ef is None else self.edge_x_ef.shape[1]

    @property
    def num_classes(self) -> int:
        """Number of classes (largest label + 1), of tasks if multi-label, or of real targets."""
        return self._facts["classes"]

    @property
    def is_real(self) -> bool:
        """Whether labels are real numbers."""
        return self.labels_n.dtype.kind == "f"

    @property
    def is_multilabel(self) -> bool:
        """Whether there are several yes/no labels instead of one class."""
        return self.labels_n.ndim == 2 and not self.is_real

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse; False also where that was never looked at."""
        return self.is_symmetrised

    @property
    def graphs(self) -> None:
        """A stored graph is one graph."""
        return None

    @property
    def links(self) -> None:
        """A stored graph holds out no links."""
        return None

    @cached_property
    def by_receiver(self) -> CSR:
        """In-edges of every node: `neighbours_e` are senders; edge ids are the positions."""
        ids: Any = Positions(self.num_edges)
        return CSR(self._offsets(OFFSETS), self.files.mapped(SENDERS), ids)

    @cached_property
    def by_sender(self) -> CSR:
        """Out-edges of every node: `neighbours_e` are receivers."""
        others = (self.files.mapped(name) for name in (RECEIVERS, EDGE_IDS))
        return CSR(self._offsets(OUT_OFFSETS), *others)

    @property
    def senders_e(self) -> np.ndarray:
        """The sender of every edge."""
        return self.by_receiver.neighbours_e

    @cached_property
    def x_nf(self) -> Any:
        """Node features: indexing gives rows, float32 where they are stored as int8 or sparse."""
        if X_OFFSETS in self.files:
            offsets, columns_v, values_v = (
                self.files.mapped(name) for name in (X_OFFSETS, X_COLUMNS, X_VALUES)
            )
            return SparseRows(offsets, columns_v, values_v, self.num_features)
        values_nf = self.files.mapped(X)
        if values_nf.dtype != np.int8:
            return values_nf
        return ScaledRows(values_nf, self._optional(X_SCALE))

    @cached_property
    def labels_n(self) -> np.ndarray:
        """As in `Graph`."""
        return self.files.mapped(LABELS)

    @cached_property
    def split_n(self) -> Mapping[str, np.ndarray]:
        """Masks by the names "train", "val" and "test"."""
        if self._masks is not None:
            return self._masks
        there = [name for name in SPLITS if f"{name}.npy" in self.files]
        return MappingProxyType({name: self.files.mapped(f"{name}.npy") for name in there})

    @cached_property
    def edge_x_ef(self) -> np.ndarray | None:
        """Features of edges in the order of their ids, or None."""
        return self._optional(EDGE_X)

    @cached_property
    def names(self) -> Names:
        """Of nodes, classes and features, where they have any."""
        known = self._facts["names"]
        return Names(self._optional(NODE_NAMES), tuple(known["classes"]), tuple(known["features"]))

    @property
    def labels(self) -> np.ndarray:
        """What is known of each node."""
        return self.labels_n

    @property
    def splits(self) -> Mapping[str, np.ndarray]:
        """Masks over what has `labels`."""
        return self.split_n

    @cached_property
    def labelled(self) -> np.ndarray:
        """Where there is a label, at least one of several."""
        return is_known(self.labels_n)

    @cached_property
    def topology_fingerprint(self) -> str:
        """Hash of the node count and the edges, of the hashes that the manifest has."""
        hashes = self.files.content["files"]
        return hash_of_json([self.num_nodes, hashes[OFFSETS], hashes[SENDERS]])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything the graph holds but names, of the hashes that the manifest has."""
        hashes: dict[str, Any] = dict(self.files.content["files"])
        hashes.pop(NODE_NAMES, None)
        if self._masks is not None:
            for name in SPLITS:
                hashes.pop(f"{name}.npy", None)
            for name, mask in self._masks.items():
                digest = new_digest()
                digest.update(np.packbits(mask).data)
                hashes[name] = digest.hexdigest()
        return hash_of_json([self.num_nodes, hashes])

    @property
    def split(self) -> int:
        """Which of the splits of the data it holds."""
        return self._facts["split"]

    @property
    def is_symmetrised(self) -> bool:
        """Whether conversion saw to it that every edge has its reverse."""
        return self._facts["symmetrise"]

    @property
    def has_self_loops(self) -> bool:
        """Whether conversion saw to it that every node has an edge to itself."""
        return self._facts["self_loops"]

    def check_prepared(
        self, *, symmetrise: bool, self_loops: bool, opposite: bool = False, adds: bool = False
    ) -> None:
        """Refuse a run that wants other edges than those that are stored.

        opposite: whether features of reverse edges are to have the opposite sign.
        adds: whether the caller has all edges in memory, and can add what is missing.
        """
        if opposite and self.num_edge_features and self._facts["added"]["symmetrise"]:
            raise UserError(
                f"reverse edges were added when {self.folder} was converted, with the features of "
                f"the edges, and this run is to tell them apart. Convert the data again with "
                f"--no-symmetrise, or run with --prepare.reverse same."
            )
        asked = {"symmetrise": symmetrise, "self_loops": self_loops}
        stored = {"symmetrise": self.is_symmetrised, "self_loops": self.has_self_loops}
        for name, wanted in asked.items():
            if wanted and not stored[name] and not adds:
                option, has, other = f"--{name}", "were not added", f"--prepare.no-{name}"
            elif not wanted and self._facts["added"][name]:
                option, has, other = f"--no-{name}", "were added", f"--prepare.{name}"
            else:
                continue
            what = "reverse edges" if name == "symmetrise" else "self-loops"
            raise UserError(
                f"{what} {has} when {self.folder} was converted, and this run wants it otherwise "
                f"(prepare.{name} is {wanted}). Convert the data again with "
                f"{option.replace('_', '-')}, or run with {other.replace('_', '-')}."
            )

    def with_splits(self, **masks: Any) -> StoredGraph:
        """The same graph with other train, val and test masks, or lists of numbers."""
        return dataclasses.replace(self, _masks=checked_splits(masks, self.labels_n))

    def with_random_splits(
        self,
        train: float = 0.6,
        val: float = 0.2,
        test: float = 0.2,
        *,
        seed: int = 0,
        stratified: bool = False,
    ) -> StoredGraph:
        """The same graph with these shares of what has a label; see `Graph.with_random_splits`.

        Takes some 50 bytes a labelled node while it draws.
        """
        shares = Shares(train, val, test)
        return self.with_splits(
            **random_split_of(self.labels_n, shares, seed, self.name, stratified=stratified)
        )

    def verify(self, progress: Progress = ignore_progress) -> None:
        """Read everything: every file against its hash, every offset and node number in range."""
        self.files.verify(lambda done, text: progress(0.8 * done, text))
        with self.files.remedied():
            for csr, names in (
                (self.by_receiver, (OFFSETS, SENDERS)),
                (self.by_sender, (OUT_OFFSETS, RECEIVERS)),
            ):
                self._check_rising(csr.offsets, names[0])
                self._check_range(csr.neighbours_e, self.num_nodes, names[1])
            progress(0.9, "checked node numbers")
            self._check_range(self.by_sender.edge_ids_e, self.num_edges, EDGE_IDS)
            if isinstance(self.x_nf, SparseRows):
                self._check_rising(self.x_nf.offsets, X_OFFSETS)
                self._check_range(self.x_nf.columns_v, self.num_features, X_COLUMNS)
            checked_splits(self.split_n, self.labels_n)
        progress(1.0, "all is as it was written")

    @property
    def memory_bytes(self) -> int:
        """What `in_memory` takes."""
        x_nf = self.x_nf
        rows = self.num_nodes * self.num_features * x_nf.dtype.itemsize
        others = [self.labels_n, *self.split_n.values(), self.by_receiver.offsets]
        others += [] if self.edge_x_ef is None else [self.edge_x_ef]
        # Senders, receivers, and the ids that a plain graph keeps by receiver.
        return rows + 12 * self.num_edges + sum(array.nbytes for array in others)

    def check_memory(self, function: str = "in_memory") -> None:
        """Refuse to read all of a graph that would not fit, for a function that would need it."""
        needed = self.memory_bytes + BESIDE.get(function, 0) * self.num_edges
        free = available_memory()
        if free is None or needed <= free:
            return
        advice = "convert it with fewer bytes a feature (--features float16)"
        if function == "plan":
            advice = (
                f"plan by its sizes: gtjax plan --nodes {self.num_nodes} --edges {self.num_edges} "
                f"--features {self.num_features} --classes {self.num_classes}"
            )
        raise UserError(
            f"{function} takes all of {self.name} in memory, {needed / 2**30:.3g} GiB, and this "
            f"machine has {free / 2**30:.3g} GiB free. Use a machine with more, or {advice}."
        )

    def in_memory(self) -> Graph:
        """All of it as a plain `Graph`, every array checked against its hash.

        Edges stand in the order of their ids. The fingerprints are those of the stored graph.
        """
        self.check_memory()
        stored = self.files.array
        offsets, senders_e = np.array(stored(OFFSETS)), np.array(stored(SENDERS))
        for name in (LABELS, X, X_SCALE, X_OFFSETS, X_COLUMNS, X_VALUES, EDGE_X):
            if name in self.files:
                stored(name)
        nodes = np.arange(self.num_nodes, dtype=senders_e.dtype)
        graph = Graph(
            senders_e=senders_e,
            receivers_e=np.repeat(nodes, np.diff(offsets)),
            x_nf=np.array(self.x_nf[:]),
            labels_n=np.array(self.labels_n),
            split_n={name: np.array(mask_n) for name, mask_n in self.split_n.items()},
            edge_x_ef=None if self.edge_x_ef is None else np.array(self.edge_x_ef),
            name=self.name,
            names=self.names,
        )
        positions = np.arange(self.num_edges, dtype=index_type(self.num_edges))
        known = {
            "by_receiver": CSR(offsets, graph.senders_e, positions),
            "fingerprint": self.fingerprint,
            "topology_fingerprint": self.topology_fingerprint,
        }
        if self.is_symmetric:
            known["is_symmetric"] = True
        graph.__dict__.update(known)  # fills cached properties, two of which cost a sort
        return graph

    @property
    def _facts(self) -> dict[str, Any]:
        return self.files.content["graph"]

    def _optional(self, name: str) -> np.ndarray | None:
        return self.files.mapped(name) if name in self.files else None

    def _check(self) -> None:
        """Arrays have the sizes and types that the counts ask for, as far as they are here."""
        nodes, edges, known = self.num_nodes, self.num_edges, self.files.content["arrays"]
        wanted: list[tuple[str, int, Any]] = [
            (OFFSETS, nodes + 1, np.int64),
            (SENDERS, edges, np.int32),
            (OUT_OFFSETS, nodes + 1, np.int64),
            (RECEIVERS, edges, np.int32),
            (EDGE_IDS, edges, index_type(edges)),
            (LABELS, nodes, None),
            *((f"{name}.npy", nodes, np.bool_) for name in SPLITS if f"{name}.npy" in known),
            (X_OFFSETS, nodes + 1, np.int64) if X_OFFSETS in known else (X, nodes, None),
        ]
        if EDGE_X in known:
            wanted.append((EDGE_X, edges, None))
        for name, rows, kind in wanted:
            if name not in known:
                raise UserError(f"{self.folder / name} is not in {FORMAT.manifest}.")
            shape, found = known[name]["shape"], np.dtype(known[name]["dtype"])
            if not shape or shape[0] != rows or kind not in (None, found):
                raise UserError(
                    f"{self.folder / name} has {rows} rows of {np.dtype(kind or found)}; found "
                    f"{found} {tuple(shape)}."
                )
        if X in known and known[X]["shape"][1:] != [self.num_features]:
            raise UserError(
                f"{self.folder} has {nodes} nodes with {self.num_features} features; found "
                f"features of shape {tuple(known[X]['shape'])}."
            )
        if self.files.fetch is None:  # else each file is looked at when it is fetched
            for name in known:
                self.files.mapped(name)
            _ = self.by_receiver, self.by_sender

    def _offsets(self, name: str) -> np.ndarray:
        offsets = self.files.mapped(name)
        if int(offsets[0]) != 0 or int(offsets[-1]) != self.num_edges:
            raise UserError(f"{self.folder / name} does not run from 0 to {self.num_edges}.")
        return offsets

    def _check_rising(self, offsets: np.ndarray, name: str) -> None:
        for start in range(0, len(offsets) - 1, _BLOCK):
            if (np.diff(offsets[start : start + _BLOCK + 1]) < 0).any():
                raise UserError(f"{self.folder / name}: offsets never decrease, and here they do.")

    def _check_range(self, numbers: np.ndarray, count: int, name: str) -> None:
        for start in range(0, len(numbers), _BLOCK):
            some = numbers[start : start + _BLOCK]
            if some.min() < 0 or some.max() >= count:
                raise UserError(f"{self.folder / name}: numbers are in 0..{count - 1}.")


MOST_INT32 = 2**31 - 1  # positions up to here are int32


def index_type(edges: int) -> np.dtype:
    """The type of the ids of so many edges."""
    return np.dtype(np.int32 if edges <= MOST_INT32 else np.int64)


def available_memory() -> int | None:
    """Bytes that this machine could give to a process now; None where that is not known."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _reopened(folder: str, masks: dict[str, np.ndarray] | None) -> StoredGraph:
    graph = StoredGraph.open(folder)
    return graph if masks is None else graph.with_splits(**masks)


def is_stored_graph(folder: Path) -> bool:
    """Whether a folder of this machine is one that `gtjax convert` wrote."""
    return folder.is_dir() and (folder / FORMAT.manifest).is_file()

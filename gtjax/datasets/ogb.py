"""Folders as the Open Graph Benchmark ships its node-property sets, in text or binary layout.

    raw/edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz       required
    raw/node-feat.csv.gz, edge-feat.csv.gz, node-label.csv.gz         optional
    raw/data.npz, node-label.npz                                      the binary layout instead
    split/<scheme>/{train,valid,test}.csv.gz                          node numbers, one a line
    mapping/nodeidx2*.csv.gz, labelidx2*.csv.gz                       names of nodes and classes

One label column is a class, several are yes/no tasks; nan is unlabelled. With several schemes the
split number counts them in alphabetical order. Edges are directed as stored, except in
ogbn-products and ogbn-proteins, known by their folder's name, which OGB itself reads with every
edge reversed as well. Node features that OGB does not ship (ogbn-proteins) are a table of width 0.
Graphs of several node types (ogbn-mag) are not one `Graph` and are refused. Names are used where
each number has one, and those of classes differ.

Hu et al.: Open Graph Benchmark: Datasets for Machine Learning on Graphs, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError, in_file
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import NpzArchive
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.tables import read_csv, read_numbers
from gtjax.graph import Graph, Names

_STORED_ONCE = ("products", "proteins")
_MASK_FILES = {"train": "train", "val": "valid", "test": "test"}


@dataclass(frozen=True)
class _Raw:
    """What either layout holds of one graph."""

    num_nodes: int
    edge_index: np.ndarray
    x_nf: np.ndarray | None
    edge_x_ef: np.ndarray | None
    labels: np.ndarray | None


def recognises(path: Path) -> bool:
    """A folder with one of the files that start every layout."""
    raw = path / "raw"
    names = ("edge.csv.gz", "data.npz", "num-node-list.csv.gz", "num-node-dict.csv.gz")
    return path.is_dir() and any((raw / name).is_file() for name in names)


def read(path: Path, options: ReadOptions) -> Graph:
    """Read one graph with its official split."""
    raw_folder, limits = path / "raw", options.limits
    check_one_type(raw_folder)
    if (raw_folder / "data.npz").is_file():
        raw = _read_binary(raw_folder, limits)
    else:
        raw = _read_text(raw_folder, limits)
    x_nf = raw.x_nf
    if x_nf is None:
        x_nf = np.zeros((raw.num_nodes, 0), np.float32)
    if len(x_nf) != raw.num_nodes:
        rule = f"one row for each of {raw.num_nodes} nodes"
        raise GraphFormatError("node-feat", rule, len(x_nf))
    name = path.resolve().name
    labels_n = _labels(raw, limits)
    graph = Graph(
        senders_e=raw.edge_index[0],
        receivers_e=raw.edge_index[1],
        x_nf=x_nf,
        labels_n=labels_n,
        split_n=read_split(path / "split", raw.num_nodes, options),
        edge_x_ef=raw.edge_x_ef,
        name=name,
        names=names_of(path / "mapping", labels_n, limits),
    )
    return graph.symmetrised() if is_stored_once(name) else graph


def check_one_type(raw_folder: Path) -> None:
    """Refuse graphs of several types of nodes."""
    if (raw_folder / "num-node-dict.csv.gz").is_file():
        rule = "one type of node and of edge; take the relation you need as an edge list"
        raise GraphFormatError("num-node-dict.csv.gz", rule, "a graph of several types")


def is_stored_once(name: str) -> bool:
    """Whether OGB itself reads every edge of a set of this name reversed as well."""
    return name.lower().endswith(_STORED_ONCE)


def names_of(folder: Path, labels_n: np.ndarray, limits: Limits, *, of_nodes: bool = True) -> Names:
    """Names of nodes and classes in a folder `mapping`, as far as it has all of them."""
    classes: list[str] = []
    if labels_n.ndim == 1:
        count = int(labels_n.max(initial=-1)) + 1
        classes = _numbered_names(folder, "labelidx2*.csv.gz", count, limits) or []
    nodes = None
    if of_nodes:
        nodes = _numbered_names(folder, "nodeidx2*.csv.gz", len(labels_n), limits)
    return Names(
        None if nodes is None else np.array(nodes, str),
        tuple(classes) if len(set(classes)) == len(classes) else (),
    )


def _numbered_names(folder: Path, pattern: str, count: int, limits: Limits) -> list[str] | None:
    """The names of 0, 1 and so on in a table of numbers and names; None unless all have one."""
    import pyarrow as pa

    file = next(iter(sorted(folder.glob(pattern))), None)
    if file is None:
        return None
    types = {"number": pa.int64(), "name": pa.string()}
    with in_file(file):
        table = read_csv(file, limits, delimiter=",", names=list(types), types=types, skip_lines=1)
        names = dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
        found = [names.get(number) or "" for number in range(count)]
        limits.check_bytes("name", 4 * count * max(map(len, found), default=0))
    return found if all(name.strip() for name in found) else None


def _read_text(folder: Path, limits: Limits) -> _Raw:
    num_nodes = single_count(folder / "num-node-list.csv.gz", limits)
    num_edges = single_count(folder / "num-edge-list.csv.gz", limits)
    edges = table_of(folder / "edge.csv.gz", limits, "integers", columns=2)
    if edges is None:
        raise GraphFormatError("edge.csv.gz", "this file is required", "no file")
    if len(edges) != num_edges:
        rule = f"{num_edges} edges, as num-edge-list says"
        raise GraphFormatError("edge.csv.gz", rule, len(edges))
    return _Raw(
        num_nodes,
        np.ascontiguousarray(edges.T),
        table_of(folder / "node-feat.csv.gz", limits, "reals"),
        table_of(folder / "edge-feat.csv.gz", limits, "reals"),
        table_of(folder / "node-label.csv.gz", limits, "reals"),
    )


def _read_binary(folder: Path, limits: Limits) -> _Raw:
    with in_file(folder / "data.npz"), NpzArchive(folder / "data.npz", limits) as archive:
        num_nodes = archive.scalar("num_nodes_list", kinds="iu")
        edge_index = archive.array("edge_index", ndim=(2,), kinds="iu")
        if edge_index.shape != (2, archive.scalar("num_edges_list", kinds="iu")):
            rule = "senders and receivers, as many as num_edges_list says"
            raise GraphFormatError("edge_index", rule, f"shape {list(edge_index.shape)}")
        x_nf, edge_x_ef = (
            archive.array(key, ndim=(2,), kinds="biuf") if key in archive else None
            for key in ("node_feat", "edge_feat")
        )
    labels = None
    label_file = folder / "node-label.npz"
    if label_file.is_file():
        with in_file(label_file), NpzArchive(label_file, limits) as archive:
            labels = archive.array("node_label", ndim=(1, 2), kinds="biuf")
            labels = labels.reshape(len(labels), -1) if labels.size else labels
    return _Raw(checked_count(num_nodes), edge_index, x_nf, edge_x_ef, labels)


def _labels(raw: _Raw, limits: Limits) -> np.ndarray:
    if raw.labels is None:
        limits.check_bytes("num-node-list", 4 * raw.num_nodes)
        return np.full(raw.num_nodes, -1, np.int32)
    check_label_shape(raw.labels.shape, raw.num_nodes)
    return label_numbers(raw.labels)


def check_label_shape(shape: tuple[int, ...], num_nodes: int) -> None:
    """A row of labels for every node."""
    if len(shape) != 2 or shape[0] != num_nodes:
        rule = f"one row for each of {num_nodes} nodes"
        raise GraphFormatError("node-label", rule, f"shape {list(shape)}")


def label_numbers(found: np.ndarray) -> np.ndarray:
    """Labels [nodes, columns] as whole numbers, -1 where unlabelled; one column is [nodes]."""
    labels = found.astype(np.float64)
    labels[np.isnan(labels)] = -1
    if (labels != np.floor(labels)).any() or np.abs(labels).max(initial=0) >= 2**31:
        raise GraphFormatError("node-label", "labels are integers or nan", "another number")
    labels = labels.astype(np.int64)
    return labels[:, 0] if labels.shape[1] == 1 else labels


def read_split(folder: Path, num_nodes: int, options: ReadOptions) -> dict[str, np.ndarray]:
    """The masks of one of the schemes in a folder."""
    schemes = (
        sorted(scheme for scheme in folder.iterdir() if scheme.is_dir()) if folder.is_dir() else []
    )
    if options.split >= max(1, len(schemes)):
        raise UserError(
            f"{folder} holds {len(schemes)} schemes: there is no split {options.split}."
        )
    masks: dict[str, np.ndarray] = {}
    if not schemes:
        return masks
    for name, stem in _MASK_FILES.items():
        file = schemes[options.split] / f"{stem}.csv.gz"
        nodes = table_of(file, options.limits, "integers", columns=1)
        if nodes is None:
            continue
        if len(nodes) and not 0 <= nodes.min() <= nodes.max() < num_nodes:
            with in_file(file):
                rule = f"node numbers are in 0..{num_nodes - 1}"
                raise GraphFormatError(name, rule, f"{nodes.min()} to {nodes.max()}")
        options.limits.check_bytes(name, num_nodes)
        masks[name] = np.zeros(num_nodes, bool)
        masks[name][nodes[:, 0]] = True
    return masks


def table_of(
    file: Path, limits: Limits, kind: Literal["integers", "reals"], columns: int | None = None
) -> np.ndarray | None:
    """The numbers in a file, None if it is not there."""
    if not file.is_file():
        return None
    with in_file(file):
        return read_numbers(file, limits, kind, columns)


def single_count(file: Path, limits: Limits) -> int:
    """The one number in a file."""
    counts = table_of(file, limits, "integers", columns=1)
    if counts is None:
        raise GraphFormatError(file.name, "this file is required", "no file")
    with in_file(file):
        if len(counts) != 1:
            raise GraphFormatError("count", "one graph a folder", f"{len(counts)} graphs")
        return checked_count(int(counts[0, 0]))


def checked_count(count: int) -> int:
    """A count, if it is not absurd."""
    if not 0 <= count <= 2**40:
        raise GraphFormatError("count", "a count is in 0..2^40", count)
    return count

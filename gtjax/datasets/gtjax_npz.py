"""Our own `.npz`: one file a graph, the form to convert everything else to.

Keys, of which the first three are required and unknown ones are ignored:

    edge_index    int [2, E]: senders, receivers
    num_nodes     int, N
    is_directed   bool; if false each edge is stored once, and reading adds its reverse
    features      real [N, F], or sparse rows feat_indptr, feat_indices, feat_data, feat_shape
    labels        int [N], -1 where unlabelled; or [N, tasks] of 0, 1, -1; or real, NaN: unknown
    train_mask, val_mask, test_mask    bool [N], or [N, splits]
    edge_type     int [E], becomes one-hot edge features (-1 for a reverse edge that is added later
                  with --prepare.reverse opposite)
    edge_features real [E, K]
    names         bytes: names of nodes, classes and features (`gtjax.graph.Names`)
    graph_ids     int [N], where these are many graphs side by side; then also
    graph_labels  as labels, of the graphs
    graph_folds   int [G], -1: always trained on; or graph_train_mask, graph_val_mask, ... [G]
    link_train, link_val, link_test, link_val_negative, link_test_negative
                  int [pairs, 2], to tell apart (`gtjax.graph.Links`); and link_directed, bool

Without features a graph has a table of width 0; without labels every label is -1. `node_year` and
`pos`, which some files carry, are deliberately not read: they give labels away.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets.compressed_rows import has_compressed_rows, read_compressed_rows
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import NpzArchive
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import SPLITS, Graph, Links, ManyGraphs, Names, required_graph


def recognises(path: Path) -> bool:
    """Any `.npz` that no other reader claimed, so that its error names our keys."""
    return path.is_file() and path.suffix.lower() == ".npz"


def read(path: Path, options: ReadOptions) -> Graph:
    """Read one graph."""
    with NpzArchive(path, options.limits) as archive:
        num_nodes = num_nodes_of(archive)
        edge_index = archive.array("edge_index", ndim=(2,), kinds="iu")
        if edge_index.shape[0] != 2:
            rule = "two rows, senders and receivers"
            raise GraphFormatError("edge_index", rule, f"shape {list(edge_index.shape)}")
        is_directed = bool(archive.scalar("is_directed", kinds="b"))
        graph = Graph(
            senders_e=edge_index[0],
            receivers_e=edge_index[1],
            x_nf=_features(archive, num_nodes, options.limits),
            labels_n=_labels(archive, num_nodes, options.limits),
            split_n=masks_of(archive, 0 if "graph_ids" in archive else options.split),
            edge_x_ef=_edge_features(archive, options.limits),
            name=path.stem,
            names=names_of(archive),
            graphs=_graphs(archive, options),
            links=_links(archive),
        )
    return graph if is_directed else graph.symmetrised()


def num_nodes_of(archive: NpzArchive) -> int:
    """How many nodes the graph has."""
    num_nodes = archive.scalar("num_nodes", kinds="iu")
    if not 1 <= num_nodes < 2**32:
        raise GraphFormatError("num_nodes", f"a graph has 1 to {2**32 - 1} nodes", num_nodes)
    return num_nodes


def save_npz(graph: Graph, path: str | Path, *, compress: bool = False) -> None:
    """Write a graph so that reading it gives the very same arrays.

    Every directed edge is stored. The file appears under its name only once it is complete.
    """
    graph = required_graph(graph, "save_npz")
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"save_npz takes the path of a file; found {type(path).__name__}.")
    path = Path(path)
    arrays: dict[str, Any] = {
        "edge_index": np.stack([graph.senders_e, graph.receivers_e]),
        "num_nodes": np.asarray(graph.num_nodes),
        "is_directed": np.asarray(True),
        "features": graph.x_nf,
        "labels": graph.labels_n,
        **{f"{name}_mask": mask for name, mask in graph.split_n.items()},
    }
    if graph.edge_x_ef is not None:
        arrays["edge_features"] = graph.edge_x_ef
    names = graph.names
    if names.nodes is not None or names.classes or names.features:
        arrays["names"] = names.to_bytes()
    if graph.links is not None:
        arrays |= {f"link_{name}": pairs for name, pairs in graph.links.arrays().items()}
        arrays["link_directed"] = np.asarray(graph.links.directed)
    if graph.graphs is not None:
        masks = {f"graph_{name}_mask": mask for name, mask in graph.graphs.split_g.items()}
        arrays |= {"graph_ids": graph.graphs.ids_n, "graph_labels": graph.graphs.labels_g, **masks}
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist; create it before saving there.")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"{path} cannot be written: give the name of a file in a folder of yours.")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            (np.savez_compressed if compress else np.savez)(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # mkstemp makes files private
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _features(archive: NpzArchive, num_nodes: int, limits: Limits) -> np.ndarray:
    is_sparse = has_compressed_rows(archive, "feat_")
    if "features" in archive:
        if is_sparse:
            raise GraphFormatError("features", "stored dense or sparse, not both", "both")
        x_nf = archive.array("features", ndim=(2,), kinds="biuf")
    elif is_sparse:
        x_nf = read_compressed_rows(archive, "feat_", limits).dense("feat_shape", limits)
    else:
        x_nf = np.zeros((num_nodes, 0), np.float32)
    if len(x_nf) != num_nodes:
        raise GraphFormatError("features", f"one row for each of {num_nodes} nodes", len(x_nf))
    return x_nf


def _labels(archive: NpzArchive, num_nodes: int, limits: Limits) -> np.ndarray:
    if "labels" in archive:
        return archive.array("labels", ndim=(1, 2), kinds="iubf")
    limits.check_bytes("num_nodes", 4 * num_nodes)
    return np.full(num_nodes, -1, np.int32)


def names_of(archive: NpzArchive) -> Names:
    """Names of nodes, classes and features."""
    if "names" not in archive:
        return Names()
    return Names.from_bytes(archive.array("names", ndim=(1,), kinds="u"))


def _links(archive: NpzArchive) -> Links | None:
    if "link_train" not in archive:
        return None
    names = ("train", "val", "test", "val_negative", "test_negative")
    pairs = {name: archive.array(f"link_{name}", ndim=(2,), kinds="iu") for name in names}
    return Links(**pairs, directed=bool(archive.scalar("link_directed", kinds="b")))


def _graphs(archive: NpzArchive, options: ReadOptions) -> ManyGraphs | None:
    if "graph_ids" not in archive:
        return None
    labels_g = archive.array("graph_labels", ndim=(1, 2), kinds="iubf")
    if "graph_folds" in archive:
        folds_g = archive.array("graph_folds", ndim=(1,), kinds="i")
        if len(folds_g) != len(labels_g):
            rule = f"one fold for each of {len(labels_g)} graphs"
            raise GraphFormatError("graph_folds", rule, len(folds_g))
        split_g = _fold(folds_g, options.split)
    else:
        split_g = masks_of(archive, options.split, "graph_")
    return ManyGraphs(archive.array("graph_ids", ndim=(1,), kinds="iu"), labels_g, split_g)


def _fold(folds_g: np.ndarray, split: int) -> dict[str, np.ndarray]:
    """Fold number `split` is for test and the next for validation; -1 is always trained on."""
    count = int(folds_g.max(initial=0)) + 1
    if count < 3:
        raise GraphFormatError("graph_folds", "at least 3 folds: train, val and test", count)
    if split >= count:
        raise UserError(f"graph_folds holds folds 0 to {count - 1}: there is no split {split}.")
    test_g, val_g = folds_g == split, folds_g == (split + 1) % count
    return {"train": ~test_g & ~val_g, "val": val_g, "test": test_g}


def masks_of(archive: NpzArchive, split: int, of: str = "") -> dict[str, np.ndarray]:
    """The masks of one of the splits; `of` is what comes before their names."""
    masks: dict[str, np.ndarray] = {}
    for name in SPLITS:
        key = f"{of}{name}_mask"
        if key not in archive:
            continue
        mask = archive.array(key, ndim=(1, 2), kinds="b")
        stored = mask.shape[1] if mask.ndim == 2 else 1
        if stored == 0:
            raise GraphFormatError(key, "at least one split", f"shape {list(mask.shape)}")
        if split >= stored:
            raise UserError(f"{key} holds splits 0 to {stored - 1}: there is no split {split}.")
        masks[name] = np.ascontiguousarray(mask[:, split]) if mask.ndim == 2 else mask
    if split and not masks:
        raise UserError(f"the file holds no splits: there is no split {split}.")
    return masks


def _edge_features(archive: NpzArchive, limits: Limits) -> np.ndarray | None:
    if "edge_features" in archive:
        return archive.array("edge_features", ndim=(2,), kinds="biuf")
    if "edge_type" not in archive:
        return None
    type_e = archive.array("edge_type", ndim=(1,), kinds="iu")
    num_types = 0
    if len(type_e):
        if type_e.min() < 0:
            raise GraphFormatError("edge_type", "types are 0 or more", int(type_e.min()))
        num_types = int(type_e.max()) + 1
    limits.check_bytes("edge_type", 4 * len(type_e) * num_types)
    one_hot_ef = np.zeros((len(type_e), num_types), np.float32)
    one_hot_ef[np.arange(len(type_e)), type_e] = 1
    return one_hot_ef

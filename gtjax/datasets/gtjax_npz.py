"""Our own `.npz`: one file a graph, the form to convert everything else to.

Keys, of which the first three are required and unknown ones are ignored:

    edge_index    int [2, E]: senders, receivers
    num_nodes     int, N
    is_directed   bool; if false each edge is stored once, and reading adds its reverse
    features      real [N, F], or sparse rows feat_indptr, feat_indices, feat_data, feat_shape
    labels        int [N], -1 where unlabelled; or [N, tasks] of 0, 1, -1
    train_mask, val_mask, test_mask    bool [N], or [N, splits]
    edge_type     int [E], becomes one-hot edge features
    edge_features real [E, K]

Without features a graph has a table of width 0; without labels every label is -1. `node_year` and
`pos`, which some files carry, are deliberately not read: they give labels away.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.datasets.compressed_rows import has_compressed_rows, read_compressed_rows
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import NpzArchive
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import SPLITS, Graph, GraphFormatError, UserError


def recognises(path: Path) -> bool:
    """Any `.npz` that no other reader claimed, so that its error names our keys."""
    return path.is_file() and path.suffix.lower() == ".npz"


def read(path: Path, options: ReadOptions) -> Graph:
    """Read one graph."""
    with NpzArchive(path, options.limits) as archive:
        num_nodes = archive.scalar("num_nodes", kinds="iu")
        if not 1 <= num_nodes < 2**32:
            raise GraphFormatError("num_nodes", f"a graph has 1 to {2**32 - 1} nodes", num_nodes)
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
            split_n=_masks(archive, options.split),
            edge_x_ef=_edge_features(archive, options.limits),
            name=path.stem,
        )
    return graph if is_directed else graph.symmetrised()


def save_npz(graph: Graph, path: str | Path, *, compress: bool = False) -> None:
    """Write a graph so that reading it gives the very same arrays.

    Every directed edge is stored. The file appears under its name only once it is complete.
    """
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
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist; create it before saving there.")
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
        return archive.array("labels", ndim=(1, 2), kinds="iub")
    limits.check_bytes("num_nodes", 4 * num_nodes)
    return np.full(num_nodes, -1, np.int32)


def _masks(archive: NpzArchive, split: int) -> dict[str, np.ndarray]:
    masks: dict[str, np.ndarray] = {}
    for name in SPLITS:
        key = f"{name}_mask"
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

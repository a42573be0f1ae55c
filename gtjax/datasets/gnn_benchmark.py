"""The `.npz` files of gnn-benchmark and of Graph2Gauss: Amazon, Coauthor, CORA-full, DBLP.

Sparse rows `adj_*` (edges), `attr_*` or a dense `attr_matrix` (features), and `labels` or sparse
`labels_*` (multi-label). Node, attribute and class names in these files may be pickles; they are
not needed and never opened. As in the paper the graph is made undirected and unweighted without
self-loops; unlike it, all nodes are kept and not only the largest component. There is no official
split: 60/20/20 of every class are drawn by seed and split number.

Shchur, Mumme, Bojchevski, Günnemann: Pitfalls of Graph Neural Network Evaluation, 2018.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.compressed_rows import has_compressed_rows, read_compressed_rows
from gtjax.datasets.limits import Limits
from gtjax.datasets.npz_archive import NpzArchive, member_names
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.splits import stratified_split
from gtjax.graph import Graph


def recognises(path: Path) -> bool:
    """An `.npz` with part of a sparse adjacency matrix and none of our own edges."""
    if not path.is_file() or path.suffix.lower() != ".npz":
        return False
    keys = member_names(path)
    return "edge_index" not in keys and any(key.startswith("adj_") for key in keys)


def read(path: Path, options: ReadOptions) -> Graph:
    """Read one graph and draw its split."""
    limits = options.limits
    with NpzArchive(path, limits) as archive:
        adjacency = read_compressed_rows(archive, "adj_", limits)
        num_nodes = adjacency.shape[0]
        if num_nodes != adjacency.shape[1] or not num_nodes:
            raise GraphFormatError("adj_shape", "a square matrix", list(adjacency.shape))
        x_nf = _features(archive, num_nodes, limits)
        labels_n = _labels(archive, num_nodes, limits)
    graph = Graph(
        senders_e=adjacency.row_numbers(),
        receivers_e=adjacency.indices,
        x_nf=x_nf,
        labels_n=labels_n,
        name=path.stem,
    )
    graph = graph.without_self_loops().without_duplicate_edges().symmetrised()
    return graph.with_splits(**stratified_split(graph.labels_n, options.seed, options.split))


def _features(archive: NpzArchive, num_nodes: int, limits: Limits) -> np.ndarray:
    if has_compressed_rows(archive, "attr_") and "attr_matrix" not in archive:
        x_nf = read_compressed_rows(archive, "attr_", limits).dense("attr_shape", limits)
    elif "attr_matrix" in archive:
        x_nf = archive.array("attr_matrix", ndim=(2,), kinds="biuf")
    else:
        x_nf = np.zeros((num_nodes, 0), np.float32)
    if len(x_nf) != num_nodes:
        raise GraphFormatError("attr", f"one row for each of {num_nodes} nodes", len(x_nf))
    return x_nf


def _labels(archive: NpzArchive, num_nodes: int, limits: Limits) -> np.ndarray:
    if "labels" in archive:
        return archive.array("labels", ndim=(1, 2), kinds="iub")
    if not has_compressed_rows(archive, "labels_"):
        return np.full(num_nodes, -1, np.int32)
    table = read_compressed_rows(archive, "labels_", limits).dense("labels_shape", limits)
    if not np.isin(table, (0, 1)).all():
        raise GraphFormatError("labels_data", "multi-labels are 0 or 1", float(table.max()))
    return table.astype(np.int32)

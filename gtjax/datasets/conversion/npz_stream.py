"""Our own `.npz` as a stream; its labels and masks, and sparse features, are read as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.core.progress import Progress
from gtjax.datasets import gtjax_npz
from gtjax.datasets.compressed_rows import has_compressed_rows, read_compressed_rows
from gtjax.datasets.conversion.node_files import (
    feature_blocks,
    node_facts,
    row_blocks,
    write_features,
    write_labels,
    write_node_names,
    write_sparse_features,
    write_splits,
)
from gtjax.datasets.conversion.npz_edges import NpzEdges
from gtjax.datasets.conversion.stream import Stream
from gtjax.datasets.npz_archive import NpzArchive
from gtjax.datasets.reader import ReadOptions
from gtjax.graph.names import checked_names
from gtjax.graph.stored_rows import SparseRows

_BLOCK_ROWS = 1 << 20


def npz_stream(path: Path, options: ReadOptions, form: str) -> Stream | str:
    """The stream of a graph in our own format; why there is none, if that is so."""
    with in_file(path), NpzArchive(path, options.limits) as archive:
        if "graph_ids" in archive or "link_train" in archive:
            return "it holds many graphs, or links"
        directed = bool(archive.scalar("is_directed", kinds="b"))
        features = "edge_features" if "edge_features" in archive else None
        types = "edge_type" if "edge_type" in archive and features is None else None
    edges = NpzEdges(path, options.limits, features, types)

    def write(folder: Path, work: Path, progress: Progress) -> dict[str, Any]:
        with in_file(path), NpzArchive(path, options.limits) as archive:
            return _write_nodes(archive, folder, options, form, progress)

    return Stream(path.stem, [path], edges, write, stored_once=not directed)


def _write_nodes(
    archive: NpzArchive, folder: Path, options: ReadOptions, form: str, progress: Progress
) -> dict[str, Any]:
    count = gtjax_npz.num_nodes_of(archive)
    width = _write_features(archive, count, folder, options, form, progress)
    if "labels" in archive:
        labels = [archive.array("labels", ndim=(1, 2), kinds="iubf")]
        if len(labels[0]) != count:
            rule = f"labels are [{count}] or [{count}, tasks]"
            raise GraphFormatError("labels_n", rule, f"shape {list(labels[0].shape)}")
        blocks: Any = labels
    else:
        blocks = (np.full(s.stop - s.start, -1, np.int32) for s in row_blocks(count, _BLOCK_ROWS))
    labels_n = write_labels(folder, blocks)
    write_splits(folder, gtjax_npz.masks_of(archive, options.split), labels_n)
    names = checked_names(gtjax_npz.names_of(archive), count, width)
    write_node_names(folder, names.nodes)
    return node_facts(labels_n, width, names, count) | {"ids": "numbers"}


def _write_features(
    archive: NpzArchive,
    count: int,
    folder: Path,
    options: ReadOptions,
    form: str,
    progress: Progress,
) -> int:
    """Write the features; gives how many there are of a node."""
    is_sparse = has_compressed_rows(archive, "feat_")
    if is_sparse and "features" in archive:
        raise GraphFormatError("features", "stored dense or sparse, not both", "both")
    if is_sparse:
        rows = read_compressed_rows(archive, "feat_", options.limits)
        width = rows.shape[1]
        _check_rows(rows.shape[0], count)
        if form in ("auto", "sparse"):
            write_sparse_features(folder, rows.indptr, rows.indices, rows.data)
            return width
        with np.errstate(over="ignore"):
            values = rows.data.astype(np.float32)
        dense = SparseRows(rows.indptr.astype(np.int64), rows.indices, values, width)
        blocks: Iterator[np.ndarray] = (dense[some] for some in feature_blocks(count, width))
        write_features(folder, blocks, width, np.dtype(np.float32), form)
        return width
    if "features" not in archive:
        blocks = (np.zeros((some.stop - some.start, 0)) for some in feature_blocks(count, 0))
        write_features(folder, blocks, 0, np.dtype(np.float32), "auto")
        return 0
    return write_streamed_features(archive, "features", count, folder, form, progress)


def write_streamed_features(
    archive: NpzArchive, key: str, count: int, folder: Path, form: str, progress: Progress
) -> int:
    """Write a dense table of an archive block by block; gives its width."""
    with contextlib.closing(archive.stream(key, ndim=(2,), kinds="biuf")) as table:
        rows, width = table.shape
        _check_rows(rows, count, key)

        def blocks() -> Iterator[np.ndarray]:
            if table.fortran and width > 1:  # column by column: there is no way around all of it
                whole = archive.array(key, ndim=(2,), kinds="biuf")
                yield from (whole[some] for some in feature_blocks(count, width))
                return
            for some in feature_blocks(count, width):
                progress(some.start / count, f"read the features of {some.start:,} nodes")
                yield table.take((some.stop - some.start) * width).reshape(-1, width)

        write_features(folder, blocks(), width, table.dtype.newbyteorder("="), form)
    return width


def _check_rows(found: int, wanted: int, key: str = "features") -> None:
    if found != wanted:
        raise GraphFormatError(key, f"one row for each of {wanted} nodes", found)

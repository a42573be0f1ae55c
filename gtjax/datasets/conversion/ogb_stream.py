"""OGB's folders as a stream, the binary layout of papers100M above all.

Features and labels are written block by block. Names of nodes are kept for up to `MOST_NAMED`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.core.progress import Progress, say
from gtjax.datasets import ogb
from gtjax.datasets.conversion.node_files import (
    feature_blocks,
    node_facts,
    row_blocks,
    write_features,
    write_labels,
    write_node_names,
    write_splits,
)
from gtjax.datasets.conversion.npz_edges import NpzEdges
from gtjax.datasets.conversion.npz_stream import write_streamed_features
from gtjax.datasets.conversion.stream import Stream
from gtjax.datasets.conversion.text_edges import TextEdges
from gtjax.datasets.npz_archive import NpzArchive
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import Names

MOST_NAMED = 5_000_000  # nodes whose names are kept; the table of names is read as a whole
_BLOCK_ROWS = 1 << 20


def ogb_stream(path: Path, options: ReadOptions, form: str) -> Stream | str:
    """The stream of an OGB folder; why there is none, if that is so."""
    raw, name = path / "raw", path.resolve().name
    ogb.check_one_type(raw)
    if not (raw / "data.npz").is_file():
        return _text_stream(path, name, options, form)
    with in_file(raw / "data.npz"), NpzArchive(raw / "data.npz", options.limits) as archive:
        count = ogb.checked_count(archive.scalar("num_nodes_list", kinds="iu"))
        claimed = archive.scalar("num_edges_list", kinds="iu")
        features = "edge_feat" if "edge_feat" in archive else None
    edges = NpzEdges(raw / "data.npz", options.limits, features)
    if edges.num_edges != claimed:
        rule = "senders and receivers, as many as num_edges_list says"
        raise GraphFormatError("edge_index", rule, f"{edges.num_edges} edges")

    def write(folder: Path, work: Path, progress: Progress) -> dict[str, Any]:
        width = 0
        with in_file(raw / "data.npz"), NpzArchive(raw / "data.npz", options.limits) as archive:
            if "node_feat" in archive:
                width = write_streamed_features(archive, "node_feat", count, folder, form, progress)
            else:
                _write_no_features(folder, count)
        return _write_others(
            folder, path, count, width, _binary_labels(raw, count, options), options
        )

    files = [raw / "data.npz", raw / "node-label.npz"]
    there = [file for file in files if file.is_file()]
    return Stream(name, there, edges, write, stored_once=ogb.is_stored_once(name))


def _text_stream(path: Path, name: str, options: ReadOptions, form: str) -> Stream | str:
    raw, limits = path / "raw", options.limits
    if (raw / "edge-feat.csv.gz").is_file():
        return "its edge features are a file of their own"
    count = ogb.single_count(raw / "num-node-list.csv.gz", limits)
    claimed = ogb.single_count(raw / "num-edge-list.csv.gz", limits)
    if not (raw / "edge.csv.gz").is_file():
        raise GraphFormatError("edge.csv.gz", "this file is required", "no file")
    edges = TextEdges(raw / "edge.csv.gz", limits)
    if edges.has_header or not edges.has_integer_ids or len(edges.names) != 2:
        return "edge.csv.gz is not two columns of integers"

    def write(folder: Path, work: Path, progress: Progress) -> dict[str, Any]:
        # As tables of text they are small enough to be read as a whole.
        x_nf = ogb.table_of(raw / "node-feat.csv.gz", limits, "reals")
        if x_nf is None:
            _write_no_features(folder, count)
        else:
            if len(x_nf) != count:
                rule = f"one row for each of {count} nodes"
                raise GraphFormatError("node-feat", rule, len(x_nf))
            blocks = (x_nf[rows] for rows in feature_blocks(count, x_nf.shape[1]))
            write_features(folder, blocks, x_nf.shape[1], x_nf.dtype, form)
        labels = ogb.table_of(raw / "node-label.csv.gz", limits, "reals")
        if labels is None:
            found = _no_labels(count)
        else:
            ogb.check_label_shape(labels.shape, count)
            found = iter([ogb.label_numbers(labels)])
        width = 0 if x_nf is None else x_nf.shape[1]
        return _write_others(folder, path, count, width, found, options)

    return Stream(
        name,
        [raw / "edge.csv.gz"],
        edges,
        write,
        stored_once=ogb.is_stored_once(name),
        expected_edges=claimed,
    )


def _write_others(
    folder: Path,
    path: Path,
    count: int,
    width: int,
    labels: Iterator[np.ndarray],
    options: ReadOptions,
) -> dict[str, Any]:
    labels_n = write_labels(folder, labels)
    write_splits(folder, ogb.read_split(path / "split", count, options), labels_n)
    few = count <= MOST_NAMED
    if not few and any((path / "mapping").glob("nodeidx2*")):
        say(f"names of nodes are not kept: there are more than {MOST_NAMED:,}")
    names = ogb.names_of(path / "mapping", labels_n, options.limits, of_nodes=few)
    write_node_names(folder, names.nodes)
    kept = Names(None, names.classes, names.features)
    return node_facts(labels_n, width, kept, count) | {"ids": "numbers"}


def _binary_labels(raw: Path, count: int, options: ReadOptions) -> Iterator[np.ndarray]:
    file = raw / "node-label.npz"
    if not file.is_file():
        yield from _no_labels(count)
        return
    with in_file(file), NpzArchive(file, options.limits) as archive:
        stream = archive.stream("node_label", ndim=(1, 2), kinds="biuf")
        with contextlib.closing(stream) as labels:
            shape = labels.shape if len(labels.shape) == 2 else (*labels.shape, 1)
            ogb.check_label_shape(shape, count)
            if labels.fortran and shape[1] > 1:
                yield ogb.label_numbers(archive.array("node_label", ndim=(2,), kinds="biuf"))
                return
            for some in row_blocks(count, _BLOCK_ROWS):
                values = labels.take((some.stop - some.start) * shape[1])
                yield ogb.label_numbers(values.reshape(-1, shape[1]))


def _no_labels(count: int) -> Iterator[np.ndarray]:
    return (np.full(s.stop - s.start, -1, np.int32) for s in row_blocks(count, _BLOCK_ROWS))


def _write_no_features(folder: Path, count: int) -> None:
    blocks = (np.zeros((s.stop - s.start, 0), np.float32) for s in feature_blocks(count, 0))
    write_features(folder, blocks, 0, np.dtype(np.float32), "auto")

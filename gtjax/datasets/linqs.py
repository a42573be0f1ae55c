"""The plain-text citation sets of LINQS (Cora, CiteSeer): `X.content` and `X.cites`.

    X.content   id <tab> feature ... feature <tab> label
    X.cites     cited id <tab> citing id

Give the folder or the `.content` file. Edges run from the citing to the cited paper and are then
symmetrised; self-citations and repeats go. Citations of papers without content are dropped, as is
customary, and their number is logged. Classes are numbered in the order of their sorted names,
and `graph.names` keeps these and the ids.

The files hold no official split: `splits.few_per_class_split` draws one like Planetoid's, by seed
and split number. Results on it compare with Planetoid's official split only roughly.

Sen et al.: Collective Classification in Network Data, AI Magazine, 2008.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from gtjax.core.errors import GraphFormatError, in_file
from gtjax.datasets.class_names import number_classes
from gtjax.datasets.limits import Limits
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.splits import few_per_class_split
from gtjax.datasets.tables import checked_width, first_line, read_csv, to_float32
from gtjax.graph import Graph, Names

_log = logging.getLogger("gtjax")


def recognises(path: Path) -> bool:
    """A `.content` file or a folder that holds one."""
    if path.is_dir():
        return any(path.glob("*.content"))
    return path.suffix.lower() == ".content"


def read(path: Path, options: ReadOptions) -> Graph:
    """Read one citation graph and draw its split."""
    content = _content_file(path)
    cites = content.with_suffix(".cites")
    if not cites.is_file():
        raise GraphFormatError("cites", f"{cites.name} stands beside {content.name}", "no file")
    with in_file(content):
        ids, x_nf, labels_n, names = _read_content(content, options.limits)
    with in_file(cites):
        senders_e, receivers_e = _read_cites(cites, ids, options.limits)
        graph = Graph(senders_e, receivers_e, x_nf, labels_n, name=content.stem, names=names)
    graph = graph.without_self_loops().without_duplicate_edges().symmetrised()
    return graph.with_splits(**few_per_class_split(labels_n, options.seed, options.split))


def _content_file(path: Path) -> Path:
    if path.is_file():
        return path
    found = sorted(path.glob("*.content"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found)
        raise GraphFormatError("content", "one .content file in the folder; name the file", names)
    return found[0]


def _read_content(
    path: Path, limits: Limits
) -> tuple[dict[str, int], np.ndarray, np.ndarray, Names]:
    """Number of every id, features and labels, and names of nodes and classes."""
    import pyarrow as pa

    width = checked_width(first_line(path, limits)[1].count("\t") + 1)
    if width < 2:
        raise GraphFormatError("columns", "tab-separated id, features and label", f"{width} column")
    names = [f"f{column}" for column in range(width)]
    types = {name: pa.float32() for name in names[1:-1]}
    types |= {names[0]: pa.string(), names[-1]: pa.string()}
    table = read_csv(path, limits, names=names, types=types, delimiter="\t", quoted=False)
    limits.check_bytes("columns", 4 * table.num_rows * (width - 2))
    ids: dict[str, int] = {}
    for row, name in enumerate(table.column(0).to_pylist()):
        if not name or ids.setdefault(name, row) != row:
            raise GraphFormatError("id", "ids are present and distinct", f"{name} in row {row}")
    x_nf = np.empty((len(ids), width - 2), np.float32)
    for column in range(width - 2):
        x_nf[:, column] = to_float32(table.column(column + 1))
    labels_n, classes = number_classes(table.column(width - 1))
    if (labels_n < 0).any():
        row = int(np.flatnonzero(labels_n < 0)[0])
        raise GraphFormatError("label", "every paper has a label", f"none in row {row}")
    limits.check_bytes("id", 4 * len(ids) * max(map(len, ids), default=0))
    return ids, x_nf, labels_n, Names(np.array(list(ids), str), classes)


def _read_cites(path: Path, ids: dict[str, int], limits: Limits) -> tuple[np.ndarray, np.ndarray]:
    """Senders (citing) and receivers (cited) of the citations between papers with content."""
    import pyarrow as pa

    if path.stat().st_size == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    types = {"cited": pa.string(), "citing": pa.string()}
    table = read_csv(
        path, limits, names=["cited", "citing"], types=types, delimiter="\t", quoted=False
    )
    cited_e, citing_e = (
        np.fromiter((ids.get(name, -1) for name in table.column(side).to_pylist()), np.int64)
        for side in ("cited", "citing")
    )
    known_e = (cited_e >= 0) & (citing_e >= 0)
    dropped = len(known_e) - int(known_e.sum())
    if dropped:
        _log.info("%s: dropped %d citations of papers without content", path.name, dropped)
    return citing_e[known_e], cited_e[known_e]

"""Edge lists as CSV or Parquet, with an optional table of nodes: bring your own graph.

Give the edge table, or a folder that holds `edges.*`. Endings: .csv .tsv .txt .edges (each also
with .gz) and .parquet. Text may start with comment lines (# or %), is separated by tab, comma,
semicolon or space, and its first line names the columns unless every field of it is a number.

Edges    Columns named source/target, src/dst, sender/receiver or from/to, else the first two.
         Every other column of numbers is an edge feature. Edges are directed as written; call
         `graph.symmetrised()` if each stands for both directions.
Nodes    `nodes.*` in the same folder, with a header. `id` names the nodes (else they are numbered
         by row); `label` or `y` is the class, a number or a name, or a real number to predict if
         any of them is not whole; empty where unlabelled. `split` says train, val or test (or
         nothing), or boolean columns train, val, test do. Every other column of numbers is a
         feature. An edge that names an unknown id is an error.

Without a table of nodes, the nodes are the ids that occur in edges: integers in ascending order,
strings in order of first appearance. With labels but no split, 60/20/20 of every class are drawn
by seed and split number. Columns that are neither numbers nor named above are left out, which is
said. Ids other than 0, 1, 2 and so on, and the names of classes and features, are kept in
`graph.names`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gtjax.core.errors import in_file
from gtjax.datasets.edge_table import EdgeTable, edges_of
from gtjax.datasets.node_table import NodeTable, nodes_of, without_nodes_table
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.splits import stratified_split
from gtjax.datasets.table_columns import Columns
from gtjax.datasets.text_tables import TABLE_SUFFIXES, read_table
from gtjax.graph import Graph
from gtjax.graph.splits import is_known


def recognises(path: Path) -> bool:
    """A file by its ending, or a folder that holds `edges.*`."""
    if path.is_dir():
        return _find_table(path, "edges") is not None
    return path.name.lower().endswith(TABLE_SUFFIXES)


def read(path: Path, options: ReadOptions) -> Graph:
    """Read the edges, the nodes if there is a table of them, and draw a split if none is given."""
    edge_file, node_file = tables_of(path)
    limits, found_out = options.limits, Columns()
    with in_file(edge_file):
        edges = edges_of(read_table(edge_file, limits), edge_file.name, limits, found_out)
    if node_file is None:
        with in_file(edge_file):
            nodes = without_nodes_table(edges, limits)
    else:
        with in_file(node_file):
            nodes = nodes_of(read_table(node_file, limits), node_file.name, limits, found_out)
    with in_file(edge_file):
        return graph_of(edges, nodes, options, name_of(path))


def tables_of(path: Path) -> tuple[Path, Path | None]:
    """The table of edges, and that of nodes if there is one."""
    edge_file = _find_table(path, "edges") if path.is_dir() else path
    assert edge_file is not None, "recognises() has seen it"
    node_file = _find_table(edge_file.parent, "nodes")
    return edge_file, None if node_file == edge_file else node_file


def name_of(path: Path) -> str:
    """What the graph of an edge list is called."""
    return path.name.split(".")[0] or "graph"


def graph_of(edges: EdgeTable, nodes: NodeTable, options: ReadOptions, name: str) -> Graph:
    """The graph of a table of edges and one of nodes; draws a split if none is given."""
    return Graph(
        senders_e=nodes.numbers_of(edges.source, "source"),
        receivers_e=nodes.numbers_of(edges.target, "target"),
        x_nf=nodes.x_nf,
        labels_n=nodes.labels_n,
        split_n=split_of(nodes, options),
        edge_x_ef=edges.edge_x_ef,
        name=name,
        names=nodes.names,
    )


def split_of(nodes: NodeTable, options: ReadOptions) -> dict[str, np.ndarray]:
    """The masks that a table of nodes has, else some that are drawn among the labelled."""
    if nodes.split_n is not None:
        return nodes.split_n
    if not is_known(nodes.labels_n).any():
        return {}
    return stratified_split(nodes.labels_n, options.seed, options.split)


def _find_table(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{suffix}" for suffix in TABLE_SUFFIXES]
    return next((file for file in found if file.is_file()), None)

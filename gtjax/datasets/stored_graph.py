"""Folders that `gtjax convert` wrote: opened, and read when something is asked of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.datasets.reader import ReadOptions
from gtjax.graph import StoredGraph
from gtjax.graph.stored import is_stored_graph


def recognises(path: Path) -> bool:
    """A folder with the manifest of a stored graph."""
    return is_stored_graph(path)


def read(path: str | Path, options: ReadOptions) -> Any:
    """Open it; it has the split that it was converted with."""
    graph = StoredGraph.open(path)
    if options.split not in (0, graph.split):
        raise UserError(
            f"{path} holds split {graph.split} alone. Convert the data again with --split "
            f"{options.split}, or draw one: --split random:60/20/20."
        )
    return graph

"""Data that can be converted as a stream: its edges, and what belongs to its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.progress import Progress
from gtjax.datasets.conversion.edge_source import EdgeSource


@dataclass(frozen=True)
class Stream:
    """One graph in files.

    write_nodes:    writes features, labels, splits and names to a folder (the second is for files
                    that are only needed on the way) and gives what the manifest says of them, with
                    "ids": "numbers", or "table" if `table_ids` wrote a list of ids. None: the nodes
                    are the ids that occur in edges.
    stored_once:    whether each edge stands for both directions.
    expected_edges: how many rows of edges the files claim, if they do.
    """

    name: str
    files: list[Path]
    edges: EdgeSource
    write_nodes: Callable[[Path, Path, Progress], dict[str, Any]] | None
    stored_once: bool = False
    expected_edges: int | None = None

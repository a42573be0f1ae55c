"""The graph of a run, when the run is brought back: stored with it or loaded, and always checked.

A graph that was given in Python has no name to load it by, so it is kept in the folder of the run,
if it is small. Whatever is found is held against the fingerprint of what the run was trained on.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.datasets import load, save_npz
from gtjax.graph import Graph
from gtjax.remote.address import shown
from gtjax.runs.config import TrainConfig
from gtjax.runs.run_folder import RunFolder

STORED = "graph.npz"
SMALL_BYTES = 256e6  # up to which a graph is kept with its run


def to_load(config: TrainConfig, data: str | Path) -> tuple[TrainConfig, Callable[[], Graph]]:
    """The config of a run on what this name or path loads, and how to load it.

    A path is stored in full, so that the run can be resumed from any folder.
    """
    name = shown(data)
    with contextlib.suppress(OSError, ValueError):  # no usable path: `load` says why
        name = str(Path(data).resolve()) if Path(data).exists() else name
    config = dataclasses.replace(config, data=name)
    return config, lambda: load(name, split=config.split)


def keep_graph(folder: RunFolder, graph: Graph, *, always: bool = False, show: bool = True) -> None:
    """Store a graph if it is small, or `always`; else say that it has to be given again."""
    arrays = (graph.senders_e, graph.receivers_e, graph.x_nf, graph.labels_n, graph.edge_x_ef)
    size = sum(array.nbytes for array in arrays if array is not None)
    if always or size <= SMALL_BYTES:
        with folder.writing(STORED):
            save_npz(graph, folder.path / STORED)
        folder.changed(STORED)
    elif show:
        say(
            f"the graph ({size / 1e9:.2g} GB) is not stored with the run; to evaluate it later, "
            f"gtjax.save_npz the graph and give its path with --data"
        )


def graph_of(folder: RunFolder, config: TrainConfig, data: str | None = None) -> Graph:
    """The graph that a run was trained on, or the one that `data` names, which may be another."""
    if data is not None:
        return load(data, split=config.split)
    if (folder.path / STORED).exists():
        graph = load(folder.path / STORED)
    else:
        graph = load(config.data, split=config.split)
    check_same_graph(folder, graph)
    return graph


def check_same_graph(folder: RunFolder, graph: Graph) -> None:
    """Refuse a graph that is not the one that the run was trained on."""
    known = folder.read_json("data.json")
    if known and known["facts"]["fingerprint"] != graph.fingerprint:
        raise UserError(
            f"{graph.name} is not the graph that {folder.shown} was trained on "
            f"({known['facts']['text']}): it has changed, or it was given in Python. Name the "
            f"right one, or on purpose another, with --data; to train on it, start a new run."
        )

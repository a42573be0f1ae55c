"""`load`: from a name or a path to a graph.

A name is a generator (`rmat:nodes=1e6`) or a data set of the catalogue (`ogbn-arxiv`), which is
downloaded once. Everything else is a path, whose format is found out by `readers.READERS`. Names
win over files; write `./grid` for a file called grid.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import GraphFormatError, UserError, in_file
from gtjax.datasets import stored_graph
from gtjax.datasets.catalogue import CATALOGUE, fetch
from gtjax.datasets.generated import generate, generators, suggestion
from gtjax.datasets.limits import Limits
from gtjax.datasets.reader import ReadOptions
from gtjax.datasets.readers import READERS
from gtjax.graph import Graph
from gtjax.graph.splits import RandomSplit
from gtjax.remote.address import address_of

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_SHOWN_CHARACTERS = 200


def load(
    name_or_path: str | Path,
    *,
    split: int | str = 0,
    seed: int = 0,
    limits: Limits | None = None,
    cache_dir: str | Path | None = None,
) -> Graph:
    """Load a graph by the name of a generator or data set, or by path.

    The folder of a stored graph (`gtjax convert`), or its address such as s3://bucket/graph, is
    opened and not read: what comes back is a `StoredGraph`, with the read-only surface of a graph.

    split:     which of several stored splits, or which draw where none is stored; or
               "random:60/20/20", which draws among all that has a label, whatever is stored,
               by `seed` or as in "random:60/20/20:3" by its own; "stratified:..." takes these
               shares of each class.
    seed:      of generators and of drawn splits.
    limits:    caps on what untrusted files may use.
    cache_dir: where downloads are kept; else `GTJAX_CACHE_DIR`, else the user's cache folder.
    """
    _check(name_or_path, split, seed)
    if isinstance(split, str):
        drawn = RandomSplit.parse(split)
        graph = load(name_or_path, seed=seed, limits=limits, cache_dir=cache_dir)
        return drawn.of(graph, seed) if graph.labelled.any() else graph
    options = ReadOptions(split, seed, limits or Limits())
    if (address := address_of(name_or_path)) is not None:
        return stored_graph.read(address, options)
    path = located(name_or_path, options.limits, cache_dir)
    return generate(str(name_or_path), seed) if path is None else _read(path, options)


def located(
    name_or_path: str | Path, limits: Limits, cache_dir: str | Path | None = None
) -> Path | None:
    """Where data is, downloaded if it has to be; None if it is a generator's."""
    _check(name_or_path, 0, 0)
    name = _name_in(name_or_path)
    if (address := address_of(name_or_path)) is not None:
        raise UserError(
            f"in a store only what gtjax convert wrote there is read; {address} is to be read as a "
            "file. Copy it to this machine first."
        )
    if name in CATALOGUE:
        if name != name_or_path:
            raise UserError(f"{name} is downloaded and takes no options: {name_or_path!r}.")
        return fetch(CATALOGUE[name], limits, cache_dir)
    if name is not None and name in generators():
        return None
    return _existing(name_or_path)


def _check(name_or_path: Any, split: Any, seed: Any) -> None:
    if not isinstance(name_or_path, str | os.PathLike):
        found = type(name_or_path).__name__
        raise UserError(f"load takes the name of a data set or a path; found {found}.")
    numbers = (seed,) if isinstance(split, str) else (split, seed)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)
    if not whole or min(numbers) < 0:
        raise UserError(
            f"split and seed are whole numbers, 0 or more: split={split!r}, seed={seed!r}."
        )


def _name_in(name_or_path: str | Path) -> str | None:
    """The part before the colon if it can be a name at all, so that paths skip the look-up."""
    head = name_or_path.partition(":")[0] if isinstance(name_or_path, str) else ""
    return head if _NAME.fullmatch(head) else None


def _read(path: Path, options: ReadOptions) -> Graph:
    with in_file(path):
        for reader in READERS:
            if reader.recognises(path):
                try:
                    return reader.read(path, options)
                except MemoryError as error:
                    rule = "the graph fits in memory (see gtjax.datasets.Limits)"
                    raise GraphFormatError("size", rule, "too little memory") from error
        known = "; ".join(reader.name for reader in READERS[1:])
        raise GraphFormatError("format", f"one of: {known}", path.name)


def _existing(name_or_path: str | Path) -> Path:
    path = Path(name_or_path)
    try:
        path = path.expanduser()
        exists = path.exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, NUL, an unknown home folder
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{_shown(path)} is not a usable path: {why}.") from error
    if exists:
        if not (path.is_file() or path.is_dir()):  # reading a pipe or a device may never end
            raise UserError(f"{path} is neither a file nor a folder.")
        if not os.access(path, os.R_OK):
            raise UserError(f"{path} may not be read: change its permissions.")
        return path
    known = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    if _name_in(name_or_path) is not None:
        known += [*generators(), *CATALOGUE]
    hint = suggestion(path.name.partition(":")[0], known) or (
        " Run `gtjax datasets` to see the names, or give the path of a file or folder."
    )
    raise UserError(f"{_shown(path)} is neither a file nor the name of a data set.{hint}")


def _shown(path: Path) -> str:
    text = repr(str(path))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...'"

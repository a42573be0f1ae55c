"""`gtjax convert DATA FOLDER`: write a graph of any size as mapped arrays, with bounded memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.core.errors import UserError
from gtjax.datasets.conversion import ConvertOptions
from gtjax.remote.address import shown


@dataclass(frozen=True)
class Convert:
    """Write a graph to a folder that opens in an instant and is read piece by piece.

    A conversion that was killed goes on where it was when it is started again."""

    data: tyro.conf.Positional[str]
    """Name or path of a data set; with --check, the folder to check."""
    folder: tyro.conf.Positional[Path | None] = None
    """New folder to write, or an address such as s3://bucket/graph."""
    check: bool = False
    """Read a folder that was written, and hold everything in it to its hashes."""
    options: Annotated[ConvertOptions, tyro.conf.arg(name="")] = field(
        default_factory=ConvertOptions
    )


def run(argv: list[str]) -> int:
    """Convert, or check."""
    arguments = parse(Convert, "convert", argv)

    from gtjax.core.progress import progress, say
    from gtjax.datasets.conversion import convert
    from gtjax.graph import StoredGraph

    if arguments.check:
        if arguments.folder is not None:
            raise UserError("--check takes one folder: gtjax convert --check FOLDER")
        graph = StoredGraph.open(arguments.data)
        with progress("checking", 1.0) as update:
            graph.verify(update)
        print(f"{graph}: all is as it was written")
        return 0
    if arguments.folder is None:
        raise UserError(
            f"convert takes the data and a new folder: gtjax convert {arguments.data} FOLDER"
        )
    started = time.monotonic()
    try:
        with progress("converting", 1.0) as update:
            graph = convert(arguments.data, arguments.folder, arguments.options, progress=update)
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        raise
    seconds = time.monotonic() - started
    print(f"{graph} in {shown(arguments.folder)}, {seconds:.1f} s")
    return 0

"""`gtjax datasets [NAME]`: what can be loaded, what is cached, and figures of one data set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Datasets:
    """List the built-in generators and downloads, or describe one data set."""

    data: tyro.conf.Positional[str | None] = None
    """Name or path of a data set to load and describe."""
    json: bool = False
    """Print JSON."""


def run(argv: list[str]) -> int:
    """Print the list, or the statistics of one data set."""
    arguments = parse(Datasets, "datasets", argv)
    if arguments.data is None:
        _list(arguments.json)
    else:
        _describe(arguments.data, arguments.json)
    return 0


def _list(as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from gtjax.datasets import listing

    infos = listing()
    if as_json:
        rows = [{**vars(info), "cached_path": _text(info.cached_path)} for info in infos]
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, header_style="bold")
    for column in ("name", "kind", "size", "cached", "what it is"):
        table.add_column(column, overflow="fold")
    for info in infos:
        size = "" if info.bytes is None else _size(info.bytes)
        table.add_row(info.name, info.kind, size, _text(info.cached_path) or "", info.description)
    Console().print(table)
    Console().print("Also: a path to .npz, LINQS, gnn-benchmark, OGB, CSV or Parquet files.")


def _describe(data: str, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from gtjax.datasets import load
    from gtjax.graph import statistics

    figures = statistics(load(data))
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    table = Table(box=None, show_header=False)
    for name, value in figures.items():
        if value is not None and name != "degree_histogram":
            table.add_row(name.replace("_", " "), _figure(value))
    Console().print(table)


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_figure(item)}" for key, item in value.items())
    if isinstance(value, list):
        shown = ", ".join(_figure(item) for item in value[:12])
        return shown + (", ..." if len(value) > 12 else "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)

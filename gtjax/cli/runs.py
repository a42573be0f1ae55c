"""`gtjax runs [FOLDER ...]`: what was trained, and what came of it; two or more runs compared."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from gtjax.cli.arguments import parse

if TYPE_CHECKING:
    from gtjax.runs.listing import RunSummary

WIDTH = 200  # of a table where there is no terminal


@dataclass(frozen=True)
class Runs:
    """List the runs in folders, or compare runs.

    Two or more folders of runs are compared: their metrics, and the settings that differ."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders that runs are in, by default runs/, or addresses such as s3://bucket/runs; or two or
    more runs to compare."""
    picture: Path | None = None
    """Also draw the curves of all these runs: .svg or .png."""
    json: bool = False
    """Print JSON."""


def run(argv: list[str]) -> int:
    """Read the folders, and print a table."""
    arguments = parse(Runs, "runs", argv)

    from gtjax.partition.picture import check_picture
    from gtjax.runs.listing import differing, find_runs, is_run, read_run

    if arguments.picture is not None:
        check_picture(arguments.picture)
    folders = arguments.folders or (Path("runs"),)
    if not arguments.folders and not folders[0].exists():
        print("[]" if arguments.json else "no runs yet: gtjax train makes one in runs/")
        return 0
    compared = len(folders) > 1 and all(is_run(folder) for folder in folders)
    runs = [read_run(path) for folder in folders for path in find_runs(folder)]
    if not compared:
        runs.sort(key=lambda run: (run.date or "", str(run.path)))
    if arguments.json:
        listed = [each.to_json() for each in runs]
        print(json.dumps({"runs": listed, "differ": differing(runs)} if compared else listed))
    elif compared:
        _compare(runs, differing(runs))
    else:
        _list(runs)
    if arguments.picture is not None:
        from gtjax.runs.curves import save_curves

        whole = [each for each in runs if each.state != "broken"]
        names = [Path(each.path).name for each in whole]
        save_curves([each.path for each in whole], names, arguments.picture)
    return 0


def _list(runs: list[RunSummary]) -> None:
    if not runs:
        print("no runs here")
        return
    columns = ("run", "state", "date", "data", "model", "task", "steps", "metric", "val", "test")
    rows = [
        [
            str(each.path),
            each.state,
            each.date,
            each.data,
            each.model,
            each.task,
            _steps(each),
            each.metric,
            _number(each.metrics.get(f"val_{each.metric}")),
            _number(each.metrics.get(f"test_{each.metric}")),
            _duration(each.seconds),
        ]
        for each in runs
    ]
    _print((*columns, "time"), rows)
    for each in runs:
        if each.problem:
            print(f"{_plain(each.path)}: {_plain(each.problem)}")


def _compare(runs: list[RunSummary], settings: dict[str, list[Any]]) -> None:
    metrics = sorted({name for each in runs for name in each.metrics}, key=_split_and_name)
    rows: list[list[Any]] = [
        ["state", *(each.state for each in runs)],
        ["date", *(each.date for each in runs)],
        ["steps taken", *(_steps(each) for each in runs)],
        *([name, *(_number(each.metrics.get(name)) for each in runs)] for name in metrics),
        ["time", *(_duration(each.seconds) for each in runs)],
        *([name, *values] for name, values in settings.items()),
    ]
    _print(("", *(str(each.path) for each in runs)), rows)
    if not settings:
        print("no setting differs")
    for each in runs:
        if each.problem:
            print(f"{_plain(each.path)}: {_plain(each.problem)}")


def _print(columns: tuple[str, ...], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(Text(_plain(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else _plain(cell)) for cell in row))
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH).print(table)


def _plain(value: object) -> str:
    """Nothing that a terminal would take for a command."""
    return "".join(c if c.isprintable() else "?" for c in str(value))


def _split_and_name(metric: str) -> tuple[int, str]:
    split, _, name = metric.partition("_")
    return ("train", "val", "test").index(split), name


def _steps(each: RunSummary) -> str:
    return str(each.steps) if each.steps == each.wanted else f"{each.steps} of {each.wanted}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _duration(seconds: float | None) -> str:
    from gtjax.runs.report.text import duration

    return "" if seconds is None else duration(seconds)

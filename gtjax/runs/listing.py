"""Runs as their folders tell of them, without jax and without trusting that they are whole."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.nn.models import DEFAULT
from gtjax.remote.address import address_of
from gtjax.remote.run_store import RunStore
from gtjax.runs.asked import FILE as ASKED
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.running import FILE as RUNNING
from gtjax.runs.running import is_running
from gtjax.runs.settings import flat
from gtjax.tasks.base import TASKS

DEPTH = 4  # of folders in folders that are searched
_FILES = ("config.json", "metrics.jsonl", "result.json", "checkpoints")
_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class RunSummary:
    """What there is to say of a run in a line."""

    path: Path | str  # or address
    state: str  # finished, interrupted, running, unknown (on another machine) or broken
    problem: str | None = None  # why it is broken
    date: str | None = None
    data: str | None = None
    model: str | None = None
    task: str | None = None
    steps: int = 0  # taken
    wanted: int | None = None  # steps that it is to take
    metric: str | None = None  # that is validated
    metrics: dict[str, float] = field(default_factory=dict)  # the best, or so far the best on val
    seconds: float | None = None  # all of it if it is finished, else its steps
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return dataclasses.asdict(self) | {"path": str(self.path)}


def is_run(folder: str | Path) -> bool:
    """Whether a run was begun there."""
    if (address := address_of(folder)) is not None:
        return RunStore.exists(address)
    folder = Path(folder)
    try:
        return any((folder / name).exists() for name in _FILES)
    except OSError:  # of somebody else
        return False


def find_runs(folder: Path) -> list[Path] | list[str]:
    """The folder if it is one of a run, else those of runs in it; of an address, addresses."""
    if (address := address_of(folder)) is not None:
        return RunStore.find(address)
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: name one of runs, such as runs/")
    return list(_found(folder, DEPTH))


def _found(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
        return
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:  # of somebody else
        return
    for path in inside if depth else ():
        if not path.name.startswith("."):
            yield from _found(path, depth - 1)


def finished_result(folder: RunFolder) -> dict[str, Any] | None:
    """The result of a run that took all steps its config asks for; None if it has yet to."""
    config, result = folder.read_json("config.json"), folder.read_json("result.json")
    if not config or not result or not (folder.path / "report.html").is_file():
        return None
    return result if result.get("config", {}).get("steps") == config["steps"] else None


def read_run(path: str | Path) -> RunSummary:
    """What the folder of a run tells; one that cannot be read is told as broken."""
    try:
        read = _read(RunFolder.at(path, writes=False))
        return read if address_of(path) is None else dataclasses.replace(read, path=path)
    except (UserError, OSError, ValueError) as error:
        return RunSummary(path, "broken", problem=str(error))
    except (AttributeError, KeyError, TypeError) as error:
        problem = f"its files are not those of a run: {error!r}"
        return RunSummary(path, "broken", problem=problem)


def differing(runs: list[RunSummary]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs, by name, with the value of each run."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    values = {name: [run.settings.get(name) for run in runs] for name in names if name != "out"}
    return {name: found for name, found in values.items() if any(v != found[0] for v in found)}


def _read(folder: RunFolder) -> RunSummary:
    config = folder.read_json("config.json")
    if config is None:
        return RunSummary(folder.path, "broken", problem="it has no config.json")
    rows, result = folder.metrics(), finished_result(folder)
    if not all(isinstance(row, dict) and {"step", "loss"} <= row.keys() for row in rows):
        raise UserError("its metrics.jsonl does not tell of steps")
    known = folder.read_json("data.json") or {}
    task = known.get("task", {})
    metric = task.get("metric")
    entry = TASKS.get(task.get("name", ""))
    falls = entry is not None and metric in entry.smaller
    return RunSummary(
        folder.path,
        "finished" if result else _unfinished(folder),
        date=_date(folder),
        data=known.get("facts", {}).get("name") or config["data"],
        model=config["model"].get("name", DEFAULT),
        task=config["task"],
        steps=result["steps"] if result else (rows[-1]["step"] if rows else 0),
        wanted=config["steps"],
        metric=metric,
        metrics=_metrics(result or _best(rows, metric, falls=falls)),
        seconds=sum(result["seconds"].values()) if result and "seconds" in result else _took(rows),
        settings=flat(config),
    )


def _unfinished(folder: RunFolder) -> str:
    states = {True: "running", False: "interrupted", None: "unknown"}
    return states[is_running(folder.read_json(RUNNING))]


def _date(folder: RunFolder) -> str:
    asked = folder.read_json(ASKED)
    if asked and asked.get("date"):
        return str(asked["date"])
    then = time.localtime((folder.path / "config.json").stat().st_mtime)
    return time.strftime("%Y-%m-%d %H:%M:%S", then)


def _best(rows: list[dict[str, Any]], metric: str | None, *, falls: bool) -> dict[str, Any]:
    """The row that is best on val so far, of a metric that rises or one that falls."""
    name = f"val_{metric}"
    able = (row for row in rows if row.get(name) is not None)
    return (min if falls else max)(able, key=lambda row: row[name], default={})


def _metrics(values: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        # The loss of val is in rows and in no result.
        if name.partition("_")[0] in _SPLITS
        and name != "val_loss"
        and value is not None
        and not name.endswith("_deviation")
    }


def _took(rows: list[dict[str, Any]]) -> float:
    """Seconds of all steps: the last row of each dispatch tells what its steps took."""
    seconds, steps = 0.0, 0
    for row in rows:
        steps += 1
        if "seconds_per_step" in row:
            seconds, steps = seconds + steps * row["seconds_per_step"], 0
    return seconds

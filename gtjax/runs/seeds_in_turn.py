"""Several seeds one after the other: where they do not fit side by side (`several_seeds`).

Each is a run of its own in a folder of the run, `seed-0` and so on, which is resumed or left alone
if it is there already. At the end the folder itself gets what a run has: the best parameters of
all, metrics with deviations, and a report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.remote.address import inside
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import TrainConfig
from gtjax.runs.listing import finished_result
from gtjax.runs.planning import fits_side_by_side
from gtjax.runs.program import Program
from gtjax.runs.result import Result
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.several_seeds import joined, stacked

if TYPE_CHECKING:
    from gtjax.runs.loop import Run


def why_in_turn(run: Run) -> str | None:
    """What keeps several seeds from being trained in one program, if anything."""
    spread, batching = run.program.spread, run.program.batching.name
    if spread.shape.devices > 1:
        return f"each is spread over {spread.shape.devices} devices"
    if batching != "full":
        return f"--batching {batching} makes batches for one at a time"
    if spread.platform != "cpu" and run.config.kernel != "xla":
        return f"the kernels for a {spread.platform} take one at a time; --kernel xla takes several"
    if not fits_side_by_side(run.config, run.source.graph):
        return "side by side they do not fit in memory"
    return None


def check_can_take_turns(run: Run) -> None:
    """Refuse what would mix what one seed trains on with what another is tested on."""
    if not run.team.is_alone:
        raise UserError(
            "--seeds trains several models in one process: start one process, or a run a seed"
        )
    if run.task.OF == "pair":
        raise UserError(
            "one after the other, each seed would hold out other links: train them in one program "
            "(one device, --batching full), or start a run a seed with --seed"
        )


def train_in_turn(run: Run, train: Callable[[TrainConfig, RunFolder | None], Result]) -> Result:
    """Train every seed that is not trained yet by `train`, and tell what came of all.

    `train` is given the config of one seed, and its folder if it has been begun.
    """
    config, folder = run.config, run.folder
    check_can_take_turns(run)
    results = []
    for number in range(config.seeds):
        path = inside(folder.shown, f"seed-{config.seed + number}")
        runtime = dataclasses.replace(config.runtime, keep_graph="never")
        own = dataclasses.replace(
            config, seed=config.seed + number, seeds=1, out=Path(path), runtime=runtime
        )
        there = RunFolder.at(path)
        begun = there if (there.path / "config.json").is_file() else None
        if run.show:
            say(f"seed {own.seed}, the {number + 1}. of {config.seeds}")
        known = None if begun is None else finished_result(begun)
        done = known is not None and known["config"]["steps"] == own.steps
        results.append(
            Result(there.path, known, there.shown) if known and done else train(own, begun)
        )
    snapshot = _together(run, results)
    about = {"seeds": config.seeds}
    with Checkpoints(folder.path, about=about, store=folder.store) as checkpoints:
        checkpoints.save(snapshot)
    run.rows = _mean_rows(results)
    folder.rewrite_metrics(run.rows)
    run.peak_bytes = max(each["peak_bytes_per_device"] for each in results)
    return run.result_of(snapshot)


def _together(run: Run, results: list[Result]) -> Snapshot:
    """The newest checkpoints of all as one; they may have stopped after different steps."""
    config = dataclasses.replace(run.config, seeds=1)
    shapes = Snapshot.shapes(Program(config, run.facts, run.task))
    found = []
    for result in results:
        folder = RunFolder.at(result.shown)
        with Checkpoints(folder.path, store=folder.store) as checkpoints:
            found.append(checkpoints.restore(shapes))
    last = max(found, key=lambda each: int(each.state.step))
    state = stacked([each.state for each in found])._replace(step=last.state.step)
    return Snapshot(state, Best(*joined([each.chosen for each in found])))


def _mean_rows(results: list[Result]) -> list[dict[str, Any]]:
    """Rows of metrics of all, step by step, as long as all were trained."""
    rows = [RunFolder(result.folder, writes=False).metrics() for result in results]
    found = []
    for same in zip(*rows, strict=False):
        row: dict[str, Any] = {"step": same[0]["step"], "seeds": {}}
        for name in dict.fromkeys(name for each in same for name in each if name != "step"):
            values = [each[name] for each in same if each.get(name) is not None]
            if not all(isinstance(value, int | float) for value in values) or not values:
                continue
            row[name] = float(np.mean(values))
            if name != "seconds_per_step" and len(values) == len(results):
                row["seeds"][name] = values
        found.append(row)
    return found

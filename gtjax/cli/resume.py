"""`gtjax resume RUN`: continue a run that was stopped or killed, or train a finished one longer."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.core.allocator import keep_freed_memory
from gtjax.core.errors import UserError
from gtjax.core.progress import say
from gtjax.distributed.exits import FINISHED
from gtjax.distributed.join import Processes, join
from gtjax.runs.interrupt import StopRequest

if TYPE_CHECKING:
    from gtjax.runs.config import TrainConfig
    from gtjax.runs.run_folder import RunFolder


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest good checkpoint.

    On any number of devices: what is not said here stays as it was, as far as it can."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or its address such as s3://bucket/run."""
    steps: int | None = None
    """Another number of steps in all, also of a run that is finished."""
    strategy: str | None = None
    """Another way of spreading attention."""
    devices: int | None = None
    """Another number of devices."""
    mesh: str | None = None
    """Other axes of the mesh, such as "node=4,feature=2"."""
    partitioner: str | None = None
    """Another way to share out the nodes."""
    processes: Annotated[Processes, tyro.conf.arg(name="")] = field(default_factory=Processes)


def parsed(argv: list[str]) -> Resume:
    """The folder, and what is to change."""
    return parse(Resume, "resume", argv)


def run(argv: list[str]) -> int:
    """Continue where the newest checkpoint left off."""
    arguments = parsed(argv)
    with StopRequest(ends=True, doing="starting") as stop:
        from gtjax.runs.run_folder import RunFolder

        try:
            folder, config = RunFolder.open(arguments.run)
        except UserError as error:  # others wait, and are told
            join(arguments.processes, problem=str(error))
            raise
        longer, said = with_steps(folder, config, arguments.steps)
        if said and arguments.processes.process_id in (None, 0):
            say(said)
        if longer is None:
            return FINISHED
        config = changed(longer, arguments)
        if config.batches.is_drawn_every_step:
            keep_freed_memory()

        from gtjax.cli.processes import joined

        joined(arguments.processes, config.parallel)

        from gtjax.cli.outcome import report_outcome
        from gtjax.runs.loop import resume
        from gtjax.runs.run_graph import graph_of

        config = _fitting_the_devices(folder, config, arguments)
        command = shlex.join(["gtjax", "resume", *argv])
        return report_outcome(
            lambda: resume(
                folder, config, lambda: graph_of(folder, config), stop=stop, command=command
            )
        )


def with_steps(
    folder: RunFolder, config: TrainConfig, steps: int | None
) -> tuple[TrainConfig | None, str]:
    """The config with so many steps, None if the run has taken them, and what to say of it."""
    from gtjax.runs.listing import finished_result

    try:
        result = finished_result(folder)
    except UserError:  # it is damaged, and will be written anew
        result = None
    if result is None and steps is None:
        return config, ""
    if result is None:
        from gtjax.runs.checkpoint import Checkpoints  # which waits for jax

        with Checkpoints(folder.path, store=folder.store) as checkpoints:
            taken = max(checkpoints.steps(), default=0)
    else:
        taken = result["steps"]
    if steps is not None and steps < max(1, taken):
        raise UserError(
            f"--steps is their number in all, and at least the {taken} that {folder.shown} has "
            f"taken; found {steps}"
        )
    if result and steps in (None, taken, config.steps):
        return None, (
            f"{folder.shown} is finished after {taken} steps. To train longer, give the steps in "
            f"all: gtjax resume {shlex.quote(folder.shown)} --steps {2 * taken}"
        )
    if steps is None or steps == config.steps:
        return config, ""
    said = f"{steps} steps instead of {config.steps}"
    if config.optim.schedule == "cosine":  # others do not ask how many steps there will be
        said += f"; the {config.optim.schedule} schedule is that of {steps} from here on"
    if result and taken < config.steps:  # it would stop again at once
        said += f"; --patience {config.patience} had ended the run, and counts no longer"
        config = dataclasses.replace(config, patience=0)
    return dataclasses.replace(config, steps=steps), said


def changed(config: TrainConfig, wanted: Resume) -> TrainConfig:
    """The config of the run with what is wanted otherwise."""
    from gtjax.runs.config import from_mapping, to_mapping

    asked = {
        name: value
        for name in ("strategy", "devices", "mesh", "partitioner")
        if (value := getattr(wanted, name)) is not None
    }
    if not asked:
        return config
    parallel = to_mapping(config.parallel)
    parallel |= {"mesh": None} | asked  # the mesh was that of the devices and the strategy before
    if wanted.mesh is not None and wanted.devices is None:
        parallel["devices"] = None
    if wanted.strategy is None:
        # A strategy for one device is none for several, and the other way round.
        one = wanted.devices == 1 or (wanted.devices is None and parallel["strategy"] == "single")
        if one or config.parallel.strategy == "single":
            parallel["strategy"] = "single" if one else "auto"
    elif wanted.strategy == "single" and wanted.devices is None:
        parallel["devices"] = 1
    made = from_mapping(type(config.parallel), parallel, "resume")
    return dataclasses.replace(config, parallel=made)


def _fitting_the_devices(folder: RunFolder, config: TrainConfig, wanted: Resume) -> TrainConfig:
    """Where nothing is said and the devices are fewer or more than before: all that there are.

    What the planner chose for those before it chooses anew; what the user named stays.
    """
    import jax

    from gtjax.cli.processes import is_one_of_several
    from gtjax.runs.asked import FILE as ASKED

    before, there = config.parallel.devices, jax.device_count()
    asked = wanted.devices is not None or wanted.mesh is not None
    told = wanted.processes.coordinator is not None  # also one that is left of several
    several = told or is_one_of_several() or jax.default_backend() != "cpu"
    if asked or before is None or not several or before == there:
        return config
    named = (folder.read_json(ASKED) or {}).get("settings", {"parallel.strategy": "unknown"})
    if named.get("parallel.strategy", "auto") in ("auto", "single"):
        parallel = dataclasses.replace(config.parallel, strategy="auto")
        config = dataclasses.replace(config, parallel=parallel)
    return changed(config, dataclasses.replace(wanted, devices=there))

"""`gtjax resume RUN`: continue a run that was stopped or killed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.distributed.join import Processes
from gtjax.training.interrupt import StopRequest

if TYPE_CHECKING:
    from gtjax.training.config import TrainConfig


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest good checkpoint.

    On any number of devices: what is not said here stays as it was, as far as it can."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
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
    with StopRequest() as stop:
        from gtjax.training.run_folder import RunFolder

        folder, config = RunFolder.open(arguments.run)
        config = changed(config, arguments)

        from gtjax.cli.processes import joined

        joined(arguments.processes, config.parallel)

        from gtjax.cli.outcome import report_outcome
        from gtjax.datasets import load
        from gtjax.training.loop import resume

        config = _fitting_the_devices(config, arguments)
        return report_outcome(
            lambda: resume(folder, config, lambda: load(config.data, split=config.split), stop=stop)
        )


def changed(config: TrainConfig, wanted: Resume) -> TrainConfig:
    """The config of the run with what is wanted otherwise."""
    from gtjax.training.config import from_mapping, to_mapping

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


def _fitting_the_devices(config: TrainConfig, wanted: Resume) -> TrainConfig:
    """Where nothing is said and the devices are fewer or more than before: all that there are."""
    import jax

    from gtjax.cli.processes import is_one_of_several

    before, there = config.parallel.devices, jax.device_count()
    asked = wanted.devices is not None or wanted.mesh is not None
    several = is_one_of_several() or jax.default_backend() != "cpu"
    if asked or before is None or not several or before == there:
        return config
    return changed(config, dataclasses.replace(wanted, devices=there))

"""`gtjax resume RUN`: continue a run that was stopped or killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Resume:
    """Continue a run from its newest checkpoint."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


def run(argv: list[str]) -> int:
    """Continue where the newest checkpoint left off."""
    arguments = parse(Resume, "resume", argv)

    from gtjax.cli.outcome import report_outcome
    from gtjax.datasets import load
    from gtjax.sharding.mesh import simulate_devices
    from gtjax.training.loop import resume
    from gtjax.training.run_folder import RunFolder

    folder, config = RunFolder.open(arguments.run)
    simulate_devices(config.parallel)
    graph = load(config.data, split=config.split)
    return report_outcome(lambda: resume(folder, config, graph))

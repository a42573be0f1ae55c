"""`gtjax train`: train a graph transformer."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.distributed.join import Processes
from gtjax.training.config import TrainConfig, read_config
from gtjax.training.interrupt import StopRequest

DESCRIPTION = """Train a graph transformer on a graph.

--config FILE reads settings from TOML or JSON; the options below win over the file."""


@dataclass(frozen=True)
class Train:
    """What to train, and as which process of how many."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    processes: Annotated[Processes, tyro.conf.arg(name="")] = field(default_factory=Processes)


def parsed(argv: list[str]) -> Train:
    """The defaults, or those of `--config FILE`, and the options that follow."""
    config_file = argparse.ArgumentParser("gtjax train", add_help=False, allow_abbrev=False)
    config_file.add_argument("--config")
    known, rest = config_file.parse_known_args(argv)
    default = Train(read_config(known.config)) if known.config else None
    return parse(Train, "train", rest, default, DESCRIPTION)


def run(argv: list[str]) -> int:
    """Train."""
    arguments = parsed(argv)
    config = arguments.config
    with StopRequest() as stop:  # from here on a signal lets the run save what there is
        from gtjax.cli.processes import joined

        joined(arguments.processes, config.parallel)

        from gtjax.cli.outcome import report_outcome
        from gtjax.datasets import load
        from gtjax.training.loop import fit

        if Path(config.data).exists():  # so that the run can be resumed from any folder
            config = dataclasses.replace(config, data=str(Path(config.data).resolve()))
        return report_outcome(
            lambda: fit(lambda: load(config.data, split=config.split), config=config, stop=stop)
        )

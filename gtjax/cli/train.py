"""`gtjax train`: train a model on a graph."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from gtjax.cli.arguments import parse, taken
from gtjax.core.allocator import keep_freed_memory
from gtjax.distributed.join import Processes
from gtjax.nn.models import DEFAULT, model_name
from gtjax.runs.config import TrainConfig, read_config, with_model
from gtjax.runs.interrupt import StopRequest

DESCRIPTION = """Train a model on a graph.

--config FILE reads settings from TOML or JSON; the options below win over the file.
--model NAME chooses the model, and --help shows the settings of the one that is named."""


@dataclass(frozen=True)
class Train:
    """What to train, and as which process of how many."""

    model: str = DEFAULT
    """Name of the model: transformer, decoupled, gcn, sage, gin, gat, gatv2, or your own as
    module:Class."""
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    processes: Annotated[Processes, tyro.conf.arg(name="")] = field(default_factory=Processes)


def parsed(argv: list[str]) -> Train:
    """The defaults, or those of `--config FILE`, and the options that follow."""
    known, rest = taken(argv, "train", "config", "model")
    config = read_config(known["config"]) if known["config"] else TrainConfig()
    if known["model"]:
        config = with_model(config, known["model"])
    default = Train(model_name(config.model), config)
    return parse(Train, "train", rest, default, DESCRIPTION)


def run(argv: list[str]) -> int:
    """Train."""
    arguments = parsed(argv)
    config = arguments.config
    if config.batches.is_drawn_every_step:
        keep_freed_memory()
    # From here on a signal lets the run save what there is.
    with StopRequest(ends=True, doing="starting") as stop:
        from gtjax.cli.processes import joined

        joined(arguments.processes, config.parallel)

        from gtjax.cli.outcome import report_outcome
        from gtjax.runs.loop import fit

        command = shlex.join(["gtjax", "train", *argv])
        return report_outcome(lambda: fit(config.data, config=config, stop=stop, command=command))

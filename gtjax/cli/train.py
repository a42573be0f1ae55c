"""`gtjax train`: train a graph transformer."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from gtjax.cli.arguments import parse
from gtjax.training.config import TrainConfig, read_config

DESCRIPTION = """Train a graph transformer on a graph.

--config FILE reads settings from TOML or JSON; the options below win over the file."""


def run(argv: list[str]) -> int:
    """Train with the defaults, or those of `--config FILE`, and the options that follow."""
    config_file = argparse.ArgumentParser("gtjax train", add_help=False, allow_abbrev=False)
    config_file.add_argument("--config")
    known, rest = config_file.parse_known_args(argv)
    default = read_config(known.config) if known.config else None
    config = parse(TrainConfig, "train", rest, default, DESCRIPTION)

    from gtjax.sharding.mesh import simulate_devices

    simulate_devices(config.parallel)  # before anything asks jax for its devices

    from gtjax.cli.outcome import report_outcome
    from gtjax.datasets import load
    from gtjax.training.loop import fit

    graph = load(config.data, split=config.split)
    if Path(config.data).exists():  # so that the run can be resumed from any folder
        config = dataclasses.replace(config, data=str(Path(config.data).resolve()))
    return report_outcome(lambda: fit(graph, config=config))

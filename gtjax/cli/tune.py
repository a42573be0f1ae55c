"""`gtjax tune DATA`: choose a model and its settings by validation, within a budget of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from gtjax.cli.arguments import parse
from gtjax.tuning.config import TuneConfig


@dataclass(frozen=True)
class Tune:
    """Choose a model and its settings for a graph, and train them.

    Trials are compared by validation alone; test labels are looked at once, at the end. The folder
    has best.toml (for gtjax train --config), the trained model in final/, all trials in trials.csv
    and as a picture. The same command with --out goes on with a tuning that was stopped."""

    data: tyro.conf.Positional[str]
    """Name of a data set or generator ("rmat:nodes=1e5"), or a path."""
    config: Annotated[TuneConfig, tyro.conf.arg(name="")] = field(default_factory=TuneConfig)


def run(argv: list[str]) -> int:
    """Tune, and print what came of it."""
    arguments = parse(Tune, "tune", argv)

    from gtjax.tuning.tune import told_test, tune

    result = tune(arguments.data, arguments.config)
    print(f"val {result['metric']}: {result['validation']:.4f} ({result['model']})")
    print(f"test {result['metric']}: {told_test(result.values)}")
    print(f"folder: {result.folder}")
    return 0

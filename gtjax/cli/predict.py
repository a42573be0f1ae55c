"""`gtjax predict RUN --out FILE`: probabilities and embeddings of every node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Predict:
    """Class probabilities and embeddings from a run's best parameters."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Path
    """File to write: .npz, or a table with a row per node as .parquet or .csv."""
    data: str | None = None
    """Another data set with the same features and classes."""


def run(argv: list[str]) -> int:
    """Load data and parameters, and write the predictions."""
    arguments = parse(Predict, "predict", argv)

    from gtjax.datasets import load
    from gtjax.sharding.mesh import simulate_devices
    from gtjax.training.progress import say
    from gtjax.training.run_folder import RunFolder
    from gtjax.training.trained import check_format, predict, write_predictions

    check_format(arguments.out)
    folder, config = RunFolder.open(arguments.run)
    simulate_devices(config.parallel)
    graph = load(arguments.data or config.data, split=config.split)
    write_predictions(predict(folder, config, graph), arguments.out)
    say(f"wrote {arguments.out}")
    return 0

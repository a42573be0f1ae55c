"""`gtjax evaluate RUN`: measure a run again, on its own data or on other data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Evaluate:
    """Metrics of a run's best parameters."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or its address such as s3://bucket/run."""
    data: str | None = None
    """Another data set with the same features and classes."""
    json: bool = False
    """Print JSON."""
    memory: float | None = None
    """GiB that may be used: the graph is gone through chunk by chunk, and what does not fit is kept
    in files. By default all of it is in memory, unless the run was trained in chunks."""


def run(argv: list[str]) -> int:
    """Load data and parameters, and print the metrics."""
    arguments = parse(Evaluate, "evaluate", argv)

    from gtjax.cli.outcome import print_metrics
    from gtjax.runs.run_graph import graph_of
    from gtjax.runs.trained import load_run

    known = load_run(arguments.run, memory=arguments.memory)
    metrics = known.evaluate(graph_of(known.folder, known.config, arguments.data))
    if arguments.json:
        known = {name: None if isnan(value) else value for name, value in metrics.items()}
        print(json.dumps(known))
    else:
        print_metrics(metrics)
    return 0

"""`gtjax predict RUN --out FILE`: class, probabilities and embedding of every node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class Predict:
    """The likeliest class of every node, probabilities and embeddings, by a run's best parameters.

    Nodes and classes have their names where the data has them."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, or its address such as s3://bucket/run."""
    out: Path
    """File to write: .npz, or a table with a row per node as .parquet or .csv."""
    data: str | None = None
    """Another data set with the same features and classes; those with names may stand in another
    order."""
    memory: float | None = None
    """GiB that may be used: the graph is gone through chunk by chunk, and what does not fit is kept
    in files. By default all of it is in memory, unless the run was trained in chunks."""


def run(argv: list[str]) -> int:
    """Load data and parameters, and write the predictions."""
    arguments = parse(Predict, "predict", argv)

    from gtjax.core.progress import say
    from gtjax.runs.predictions import check_format, write_predictions
    from gtjax.runs.run_graph import graph_of
    from gtjax.runs.trained import load_run

    check_format(arguments.out)
    known = load_run(arguments.run, memory=arguments.memory)
    graph = graph_of(known.folder, known.config, arguments.data)
    write_predictions(known.predict(graph), arguments.out)
    say(f"wrote {arguments.out}")
    return 0

"""A finished run brought back: evaluate it again, or predict with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from gtjax.graph import Graph, UserError
from gtjax.training.checkpoint import Checkpoints, Snapshot
from gtjax.training.config import TrainConfig
from gtjax.training.prepare import in_graph_order, make_batch
from gtjax.training.run_folder import RunFolder
from gtjax.training.step import Program
from gtjax.training.task import Task


@dataclass(frozen=True)
class Predictions:
    """Of every node: probability of each class (or of a yes to each task), and embedding."""

    probabilities_nc: np.ndarray
    embeddings_nf: np.ndarray
    metrics: dict[str, float]


def predict(folder: RunFolder, config: TrainConfig, graph: Graph) -> Predictions:
    """Run the best parameters of a run over a graph with the same features and classes.

    The graph may lack labels and splits; a metric over no labelled node is NaN.
    """
    graph, task = _fitted(folder, config, graph)
    program = Program(config, graph, task)
    with Checkpoints(folder.path) as checkpoints:
        snapshot = checkpoints.restore(Snapshot.shapes(program))
    batch = make_batch(graph, config, program.exact)
    outputs, metrics = jax.jit(program.predict)(snapshot.chosen.params, batch)
    return Predictions(
        in_graph_order(batch, np.asarray(task.probabilities(outputs.logits_nc))),
        in_graph_order(batch, np.asarray(outputs.embeddings_nf)),
        {name: float(value) for name, value in metrics.items()},
    )


def _fitted(folder: RunFolder, config: TrainConfig, graph: Graph) -> tuple[Graph, Task]:
    """The task that was trained, and the graph with labels of its kind; refuses what differs."""
    known = _known_sizes(folder)
    classes, multilabel = known.get("classes", 0), known.get("multilabel", False)
    sizes = {"features": graph.num_features, "edge_features": graph.num_edge_features}
    if (graph.labels_n < 0).all():
        shape = (graph.num_nodes, classes) if multilabel else graph.num_nodes
        graph = dataclasses.replace(graph, labels_n=np.full(shape, -1))
    elif multilabel or graph.is_multilabel or graph.num_classes > classes:
        # With one label per node the graph may lack the last classes.
        sizes |= {"multilabel": graph.is_multilabel, "classes": graph.num_classes}
    for name, size in sizes.items():
        if known.get(name) != size:
            raise UserError(
                f"{folder.path} was trained on {known.get(name)} {name.replace('_', ' ')}; "
                f"{graph.name} has {size}"
            )
    return graph, Task(classes, multilabel, config.metric, config.optim.label_smoothing)


def _known_sizes(folder: RunFolder) -> dict[str, Any]:
    facts = (folder.read_json("data.json") or {}).get("facts")
    if facts is None:
        return {}
    names = {"features": "num_features", "edge_features": "num_edge_features"}
    names |= {"classes": "num_classes", "multilabel": "is_multilabel"}
    return {name: facts.get(field) for name, field in names.items()}


def check_format(path: Path) -> None:
    """Refuse a file name that says no known format, before any work is done."""
    if path.suffix not in _WRITERS:
        raise UserError(f"--out ends in {', '.join(_WRITERS)}; found {path.name!r}")


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write .npz (arrays), or a table with a row per node as .parquet or .csv."""
    check_format(path)
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            _WRITERS[path.suffix](predictions, file)
        part.replace(path)
    except OSError as error:
        raise UserError(f"--out {path}: cannot write there: {error.strerror}") from error


def _write_npz(predictions: Predictions, file: BinaryIO) -> None:
    np.savez_compressed(
        file,
        probabilities=predictions.probabilities_nc,
        embeddings=predictions.embeddings_nf,
    )


def _table(predictions: Predictions) -> object:
    import pyarrow

    columns: dict[str, np.ndarray] = {"node": np.arange(len(predictions.probabilities_nc))}
    for name, table in (
        ("probability", predictions.probabilities_nc),
        ("embedding", predictions.embeddings_nf),
    ):
        columns.update({f"{name}_{i}": table[:, i] for i in range(table.shape[1])})
    return pyarrow.table(columns)


def _write_parquet(predictions: Predictions, file: BinaryIO) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(predictions), file)


def _write_csv(predictions: Predictions, file: BinaryIO) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(_table(predictions), file)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}

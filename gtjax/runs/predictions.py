"""What a trained model says of nodes, pairs of nodes or graphs, and tables of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gtjax.core.errors import UserError


@dataclass(frozen=True, eq=False)
class Predictions:
    """The task's answers, a row for each node, pair or graph, and the embeddings of nodes."""

    answers_nc: np.ndarray
    embeddings_nf: np.ndarray
    metrics: dict[str, float]
    called: tuple[str, str] = ("output", "outputs")  # what an answer is called, and several
    nodes: np.ndarray | None = None  # names of the nodes, if they have any
    classes: tuple[str, ...] = ()  # what the columns of the answers are called, if they have names
    chosen_n: np.ndarray | None = None  # where one class is right: the number of the likeliest
    of: str = "node"  # what has an answer each: "node", "pair" or "graph"
    pairs_k2: np.ndarray | None = None  # node numbers, where pairs have answers

    @property
    def chosen_names_n(self) -> np.ndarray:
        """The likeliest class of every row, by name where classes have names."""
        assert self.chosen_n is not None
        return np.array(self.classes)[self.chosen_n] if self.classes else self.chosen_n

    def only(self, nodes: Sequence[Any] | np.ndarray, num_nodes: int) -> Predictions:
        """Those of some nodes, by number or by name, in the order given."""
        if self.of != "node":
            raise UserError(f"nodes= chooses answers of nodes; here each {self.of} has one")
        at = node_numbers(nodes, self.nodes, num_nodes)
        return dataclasses.replace(
            self,
            answers_nc=self.answers_nc[at],
            embeddings_nf=self.embeddings_nf[at],
            nodes=at.astype(str) if self.nodes is None else self.nodes[at],
            chosen_n=None if self.chosen_n is None else self.chosen_n[at],
        )

    def rows(self) -> dict[str, np.ndarray]:
        """What says whose answer a row is, by column."""
        if self.pairs_k2 is None:
            numbers = np.arange(len(self.answers_nc))
            return {self.of: numbers if self.nodes is None else self.nodes}
        ends = self.pairs_k2 if self.nodes is None else self.nodes[self.pairs_k2]
        return {"source": ends[:, 0], "target": ends[:, 1]}


def node_numbers(wanted: Any, names: np.ndarray | None, num_nodes: int) -> np.ndarray:
    """Numbers of nodes that are given by number or by name."""
    array = np.asarray(wanted)
    if array.dtype.kind in "iu" or not array.size:
        outside = array[(array < 0) | (array >= num_nodes)] if array.size else array
        if outside.size:
            raise UserError(f"node numbers are in 0..{num_nodes - 1}; found {outside.flat[0]}")
        return array.astype(np.int64)
    if array.dtype.kind != "U" or names is None:
        kind = "numbers" if names is None else "numbers or names"
        raise UserError(f"nodes are given by {kind} here; found {array.dtype}")
    order = np.argsort(names, kind="stable")
    place = np.minimum(np.searchsorted(names[order], array), len(names) - 1)
    found = order[place]
    if (unknown := names[found] != array).any():
        raise UserError(f"no node is called {array[unknown].flat[0]!r}")
    return found


def check_format(path: Path) -> None:
    """Refuse a file name that says no known format, before any work is done."""
    if path.suffix not in _WRITERS:
        raise UserError(f"--out ends in {', '.join(_WRITERS)}; found {path.name!r}")


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write .npz (arrays), or a table with a row per node, pair or graph as .parquet or .csv.

    A row has the node by name or number, the class that is predicted for it and its probability,
    the probabilities of all classes in columns named after them, and the embedding.
    """
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
    answers: dict[str, Any] = {predictions.called[1]: predictions.answers_nc}
    if predictions.nodes is not None:
        answers["nodes"] = predictions.nodes
    if predictions.pairs_k2 is not None:
        answers["pairs"] = predictions.pairs_k2
    if predictions.chosen_n is not None:
        answers["predicted"] = predictions.chosen_names_n
    if predictions.classes:
        answers["classes"] = np.array(predictions.classes)
    np.savez_compressed(file, **answers, embeddings=predictions.embeddings_nf)


def _table(predictions: Predictions) -> object:
    import pyarrow

    answers_nc, one = predictions.answers_nc, predictions.called[0]
    rows = np.arange(len(answers_nc))
    columns = predictions.rows()
    if predictions.chosen_n is not None:
        columns["predicted"] = predictions.chosen_names_n
        columns[one] = answers_nc[rows, predictions.chosen_n]
    if answers_nc.shape[1] > 1 or predictions.classes:
        names = predictions.classes or range(answers_nc.shape[1])
        columns |= {f"{one}_{name}": answers_nc[:, i] for i, name in enumerate(names)}
    else:
        columns[one] = answers_nc[:, 0]
    if predictions.of == "node":
        embeddings_nf = predictions.embeddings_nf
        columns |= {f"embedding_{i}": embeddings_nf[:, i] for i in range(embeddings_nf.shape[1])}
    return pyarrow.table(columns)


def _write_parquet(predictions: Predictions, file: BinaryIO) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(_table(predictions), file)


def _write_csv(predictions: Predictions, file: BinaryIO) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(_table(predictions), file)


_WRITERS = {".npz": _write_npz, ".parquet": _write_parquet, ".csv": _write_csv}

"""Thousands of broken files: each one loads as a valid graph or raises one `GraphFormatError`.

Deterministic: a failure names its format and number, and that input can be made again alone.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from mutations import mutate
from pyarrow import parquet
from sample_files import (
    gnn_benchmark_arrays,
    npz_arrays,
    sparse_npz_arrays,
    write_edge_list,
    write_linqs,
    write_ogb,
)

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import Limits, load
from gtjax.graph import Graph
from tests.marks import slow

BATCHES, BATCH_SIZE = 3, 500
LIMITS = Limits(max_bytes=4_000_000)


def _npz(make: Callable[[], dict[str, np.ndarray]]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.savez_compressed(folder / "graph.npz", **make())
        return folder / "graph.npz"

    return write


def _parquet(folder: Path) -> Path:
    text = write_edge_list(folder / "text")
    for name in ("edges", "nodes"):
        table = pyarrow.csv.read_csv(text / f"{name}.csv")
        parquet.write_table(table, folder / f"{name}.parquet", compression="snappy")
    shutil.rmtree(text)
    return folder


# Name of a format -> writes a valid sample into a folder and returns the path to load.
FORMATS: dict[str, Callable[[Path], Path]] = {
    "npz": _npz(npz_arrays),
    "sparse npz": _npz(sparse_npz_arrays),
    "gnn-benchmark": _npz(gnn_benchmark_arrays),
    "linqs": write_linqs,
    "ogb text": lambda folder: write_ogb(folder / "toy"),
    "ogb binary": lambda folder: write_ogb(folder / "toy", binary=True),
    "csv": write_edge_list,
    "parquet": _parquet,
}


@pytest.fixture
def no_pickle(monkeypatch):
    """Any attempt to unpickle ends the test, whatever the reader makes of the error."""
    attempts = []

    def trap(*args, **kwargs):
        attempts.append(args)
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, trap)
    yield
    assert attempts == []


def test_the_number_of_inputs_is_what_we_promise():
    assert len(FORMATS) * BATCHES * BATCH_SIZE >= 5_000


@pytest.mark.usefixtures("no_pickle")
@pytest.mark.parametrize("batch", [0, *map(slow, range(1, BATCHES))])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.quick_every(2)
def test_a_broken_file_is_a_valid_graph_or_one_error(tmp_path, name, batch):
    target = FORMATS[name](tmp_path)
    intact = load(target, limits=LIMITS)  # the sample itself is fine
    pristine = {file: file.read_bytes() for file in sorted(tmp_path.rglob("*")) if file.is_file()}
    files, rejected, loaded = list(pristine), 0, 0
    for number in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
        rng = np.random.default_rng([list(FORMATS).index(name), number])
        file = files[rng.integers(len(files))]
        done = mutate(file, rng)
        about = f"{name}, input {number}: {done} on {file.name}"
        outcome = load_or_error(target, about)
        if isinstance(outcome, Graph):
            assert_valid(outcome, about)
            loaded += 1
        else:
            assert_helpful(outcome, tmp_path, about)
            rejected += 1
        file.write_bytes(pristine[file])
    assert rejected + loaded == BATCH_SIZE
    assert rejected > BATCH_SIZE // 3, "the mutations hardly ever break a rule"
    assert loaded > 0, "the mutations break everything, so that nothing past the first check runs"
    assert load(target, limits=LIMITS).fingerprint == intact.fingerprint


def load_or_error(target: Path, about: str) -> Graph | GraphFormatError:
    try:
        return load(target, limits=LIMITS)
    except GraphFormatError as error:
        return error
    except BaseException as error:
        raise AssertionError(about) from error


def assert_helpful(error: GraphFormatError, folder: Path, about: str) -> None:
    """The error names a file of the sample, a field and a rule, and its value is printable."""
    assert error.file is not None, about
    assert error.file.startswith(str(folder)), about
    assert error.field, about
    assert error.rule, about
    assert str(error).startswith(error.file), about
    assert str(error).isprintable(), about


def assert_valid(graph: Graph, about: str) -> None:
    """The rules of a graph, checked here once more and without the product's own code."""
    assert isinstance(graph, Graph), about
    assert graph.x_nf.ndim == 2, about
    assert np.isfinite(graph.x_nf).all(), about
    for ends in (graph.senders_e, graph.receivers_e):
        assert ends.dtype == np.int32, about
        assert ((ends >= 0) & (ends < graph.num_nodes)).all(), about
    assert len(graph.senders_e) == len(graph.receivers_e), about
    assert len(graph.labels_n) == graph.num_nodes, about
    if graph.labels_n.dtype.kind == "f":
        assert not np.isinf(graph.labels_n).any(), about
    else:
        assert (graph.labels_n >= -1).all(), about
    if graph.split_n:
        times_used_n = np.sum(list(graph.split_n.values()), axis=0)
        assert times_used_n.max() <= 1, about
    if graph.edge_x_ef is not None:
        assert len(graph.edge_x_ef) == graph.num_edges, about
        assert np.isfinite(graph.edge_x_ef).all(), about

"""A small graph, and what tests of runs share."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gtjax.datasets import load
from gtjax.graph import Graph
from gtjax.runs.loop import fit
from gtjax.runs.result import Result
from tests.runs.small_run import DATA, small_config


@pytest.fixture(scope="session")
def graph() -> Graph:
    """300 nodes, 4 classes, 30 of the nodes for training."""
    return load(DATA)


@pytest.fixture(scope="session")
def finished(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run of `small_config`, which nobody stopped; to spoil it, copy its folder."""
    return fit(graph, config=small_config(tmp_path_factory.mktemp("finished") / "run"))


@pytest.fixture
def randomly_labelled(graph: Graph, rng: np.random.Generator) -> Graph:
    """The same graph with labels that nothing predicts."""
    return dataclasses.replace(graph, labels_n=rng.integers(0, 4, graph.num_nodes))


@pytest.fixture
def rng() -> np.random.Generator:
    """Fixed random numbers."""
    return np.random.default_rng(0)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of a new run."""
    return tmp_path / "run"

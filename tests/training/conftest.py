"""A small graph and a small model; what they compile to is kept for the whole session."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from gtjax.datasets import load
from gtjax.graph import Graph
from tests.training.small_run import DATA


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory):
    """Many of these tests train the same small model: compile it once for all processes."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    settings = {
        "jax_compilation_cache_dir": str(base / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    names = {name: str(value) for name, value in settings.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in names.items():  # for processes that tests start
            patch.setenv(name.upper(), value)
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="session")
def graph() -> Graph:
    """300 nodes, 4 classes, 30 of the nodes for training."""
    return load(DATA)


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

"""Fixtures of the data-set tests: the real graphs if they are at hand, and stand-in generators."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from gtjax.graph import Graph


@pytest.fixture(scope="session")
def real_graphs() -> Path:
    """The folder of real graphs: GTJAX_TEST_DATA, or `shared/data` beside the checkout."""
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("GTJAX_TEST_DATA") or beside)
    if not (folder / "cora.npz").is_file():
        pytest.skip(f"no real graphs in {folder}; set GTJAX_TEST_DATA")
    return folder


def ring(*, nodes: int = 5, weight: float = 1.0, closed: bool = True, seed: int = 0) -> Graph:
    """A cycle.

    Used by the tests alone.
    """
    senders = np.arange(nodes if closed else nodes - 1)
    x_nf = np.full((nodes, 1), weight + seed)
    return Graph(senders, (senders + 1) % nodes, x_nf, np.zeros(nodes, int), name="ring")


@pytest.fixture
def fake_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two generators in place of the real table, so that options can be told from defaults."""
    module = types.ModuleType("gtjax.graph.generators")
    module.GENERATORS = {"ring": ring, "grid": lambda: ring(nodes=4)}
    monkeypatch.setitem(sys.modules, module.__name__, module)

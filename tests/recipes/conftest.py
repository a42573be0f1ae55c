"""A graph of a prime number of nodes, with a hub, nodes without edges and nodes without labels."""

from __future__ import annotations

import numpy as np
import pytest

from gtjax.graph import Graph

NODES = 61


@pytest.fixture(scope="session")
def graph() -> Graph:
    """3 classes; a quarter of the nodes each for training, validation and test."""
    rng = np.random.default_rng(5)
    splits, labels = rng.integers(0, 4, NODES), rng.integers(0, 3, NODES)
    labels[splits == 3] = -1
    ends = rng.integers(0, NODES - 3, (2, 150))
    return Graph(
        ends[0],
        np.where(rng.random(150) < 0.3, 7, ends[1]),
        rng.standard_normal((NODES, 5)).astype(np.float32),
        labels,
        {name: splits == number for number, name in enumerate(("train", "val", "test"))},
    )

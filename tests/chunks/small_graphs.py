"""Graphs that are awkward to cut: prime sizes, hubs, loops, double edges, nodes without any."""

from __future__ import annotations

import numpy as np

from gtjax.graph import Graph

NODES, HUB = 97, 150  # the hub has more edges than a block holds


def awkward(edge_features: int = 0, labels: str = "classes") -> Graph:
    """A directed graph with a hub at either end, of which some nodes have no edge at all."""
    rng = np.random.default_rng(0)
    senders, receivers = rng.integers(0, NODES - 7, (2, 400))
    receivers[:HUB], senders[HUB : HUB + 90] = 5, 9
    senders, receivers = (np.append(a, [3, 3, 4]) for a in (senders, receivers))
    split_n = rng.integers(0, 4, NODES)
    labels_n = np.where(split_n < 3, rng.integers(0, 4, NODES), -1)
    if labels == "real":
        labels_n = rng.normal(size=(NODES, 2)).astype(np.float32)
    if labels == "multi":
        labels_n = rng.integers(-1, 2, (NODES, 3))
        labels_n[:, 0] = np.abs(labels_n[:, 0])
    return Graph(
        senders,
        receivers,
        rng.normal(size=(NODES, 6)).astype(np.float32),
        labels_n,
        {name: split_n == i for i, name in enumerate(("train", "val", "test"))},
        edge_x_ef=(
            rng.normal(size=(len(senders), edge_features)).astype(np.float32)
            if edge_features
            else None
        ),
        name="awkward",
    )

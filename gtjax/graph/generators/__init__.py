"""Synthetic graphs: what you need when there is no data at hand, or when its shape is the question.

| name | degrees | cuts | what a model learns |
|---|---|---|---|
| `synthetic-citation` | mildly skewed | by class | class from noisy features and neighbours |
| `rmat` | power law, large hubs | badly | class from noisy features, and a little from the edges |
| `uniform` | nearly equal | badly | class from noisy features; the edges say nothing |
| `grid` | equal | very well | class from noisy features and surroundings |

Every generator takes keyword arguments only, is deterministic by `seed`, and returns a symmetric
`Graph` without self-loops or repeated edges, with train, val and test masks. Ten million directed
edges take seconds; no loop runs over edges in Python.
"""

from collections.abc import Callable

from gtjax.graph.generators.citation import synthetic_citation
from gtjax.graph.generators.grid import grid
from gtjax.graph.generators.rmat import rmat
from gtjax.graph.generators.uniform import uniform
from gtjax.graph.graph import Graph

GENERATORS: dict[str, Callable[..., Graph]] = {
    "synthetic-citation": synthetic_citation,
    "rmat": rmat,
    "uniform": uniform,
    "grid": grid,
}

__all__ = ["GENERATORS", "grid", "rmat", "synthetic_citation", "uniform"]

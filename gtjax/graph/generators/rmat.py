"""A power-law graph with large hubs, as in the Graph500 benchmark.

Choose it as the hard case for balance: a few nodes hold a large share of the edges, and no cut is
good. Edges fall into the quadrants of the adjacency matrix with chances a, b, c and d, again and
again until a single entry is left (Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for
graph mining", 2004).
"""

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph.generators.distinct_pairs import both_directions, distinct_pairs
from gtjax.graph.generators.node_data import noisy_centroids, random_splits
from gtjax.graph.generators.requirements import require_at_least, require_fraction, require_sizes
from gtjax.graph.graph import Graph

_BLOCK = 1 << 16  # pairs drawn together: their arrays stay in the cache over all levels


def rmat(
    *,
    nodes: int = 10_000,
    edges: int = 160_000,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    classes: int = 8,
    features: int = 64,
    signal: float = 3.0,
    seed: int = 0,
) -> Graph:
    """Power-law graph with large hubs (R-MAT, as in Graph500).

    The label is the stretch of the recursion's numbering that a node lies in: `classes` equal
    stretches, where nodes of the first have the most edges. Node numbers are shuffled afterwards,
    so a number tells nothing. Features are noisy centroids of the label. A quarter of the nodes
    (of a million, half) have no edges.

    nodes: need not be a power of two; entries of the next larger matrix outside are drawn again.
    edges: directed edges in the graph, each undirected edge counted twice; made even if odd.
    a, b, c: chances of the upper left, upper right and lower left quadrant; d is what is left.
    """
    require_sizes(nodes=nodes, classes=classes, features=features, seed=seed)
    require_at_least("edges", edges, 0)
    for name, value in (("a", a), ("b", b), ("c", c), ("a + b + c", a + b + c)):
        require_fraction(name, value)
    if a < max(b, c, 1 - a - b - c):
        raise UserError(f"a is the largest of a, b, c and d; found a={a}. Raise a.")
    rng = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        # At least a quarter of the draws stay, since a is the largest and keeps all of its own.
        blocks = [_entries(nodes, (a, b, c), rng) for _ in range(-(-count // _BLOCK))]
        rows, columns = (np.concatenate(part) for part in zip(*blocks, strict=True))
        return rows[:count], columns[:count]

    low, high = distinct_pairs(draw, count=edges // 2, num_nodes=nodes, rng=rng)
    number_of = rng.permutation(nodes).astype(np.int32)
    senders_e, receivers_e = both_directions(number_of[low], number_of[high])
    labels_n = np.empty(nodes, np.int32)
    labels_n[number_of] = np.arange(nodes, dtype=np.int64) * classes // nodes
    return Graph(
        senders_e,
        receivers_e,
        noisy_centroids(labels_n, classes=classes, features=features, signal=signal, rng=rng),
        labels_n,
        random_splits(nodes, train=0.5, val=0.25, rng=rng),
        name="rmat",
    )


def _entries(
    nodes: int, chances: tuple[float, float, float], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A block of matrix entries, those outside of `nodes` rows and columns left out."""
    a, b, c = chances
    rows = np.zeros(_BLOCK, np.int32)
    columns = np.zeros(_BLOCK, np.int32)
    for _ in range((nodes - 1).bit_length()):
        chance = rng.random(_BLOCK, np.float32)
        lower = chance >= a + b
        right = ((chance >= a) & ~lower) | (chance >= a + b + c)
        rows <<= 1
        rows += lower
        columns <<= 1
        columns += right
    inside = (rows < nodes) & (columns < nodes)
    return rows[inside], columns[inside]

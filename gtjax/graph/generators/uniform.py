"""The graph with no structure at all: every set of edges is equally likely.

Choose it as the worst case for a partition with balanced degrees: no cut is better than a random
one, so what a strategy costs here is what the number of edges alone makes it cost
(Erdos and Renyi, "On random graphs I", 1959: the G(n, M) model).
"""

import numpy as np

from gtjax.graph.generators.distinct_pairs import both_directions, distinct_pairs
from gtjax.graph.generators.node_data import noisy_centroids, random_splits
from gtjax.graph.generators.requirements import require_at_least, require_sizes
from gtjax.graph.graph import Graph


def uniform(
    *,
    nodes: int = 10_000,
    edges: int = 160_000,
    classes: int = 8,
    features: int = 64,
    signal: float = 3.0,
    seed: int = 0,
) -> Graph:
    """Uniformly random edges: nearly equal degrees and no good cut.

    Labels are random and independent of the edges; the features are noisy centroids of the class,
    so a model can learn from features, and edges do not help it.

    edges: directed edges in the graph, each undirected edge counted twice; made even if odd.
    """
    require_sizes(nodes=nodes, classes=classes, features=features, seed=seed)
    require_at_least("edges", edges, 0)
    rng = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        left, right = rng.integers(nodes, size=(2, count), dtype=np.int32)
        return left, right

    low, high = distinct_pairs(draw, count=edges // 2, num_nodes=nodes, rng=rng)
    senders_e, receivers_e = both_directions(low, high)
    labels_n = rng.integers(classes, size=nodes, dtype=np.int32)
    return Graph(
        senders_e,
        receivers_e,
        noisy_centroids(labels_n, classes=classes, features=features, signal=signal, rng=rng),
        labels_n,
        random_splits(nodes, train=0.5, val=0.25, rng=rng),
        name="uniform",
    )

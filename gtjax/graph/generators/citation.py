"""A citation-like graph whose classes a model can only tell by looking at neighbours.

Choose it to see that a graph model learns: features alone are too noisy, and averaging over a
neighbourhood removes the noise. The graph is a degree-corrected stochastic block model
(Karrer and Newman, "Stochastic blockmodels and community structure in networks", 2011).

Test accuracy of ridge regression at the default size, seeds 0 to 2 (a test keeps the figures
honest): 45 to 51 % on the features of the node alone, 89 to 91 % after averaging them over the
node and its neighbours once, 97 % after averaging twice. Chance is 12.5 %.
"""

import numpy as np

from gtjax.graph.generators.distinct_pairs import both_directions, distinct_pairs
from gtjax.graph.generators.node_data import noisy_centroids, random_splits
from gtjax.graph.generators.requirements import require_at_least, require_fraction, require_sizes
from gtjax.graph.graph import Graph

TRAIN_FRACTION = 0.1
VAL_FRACTION = 0.2


def synthetic_citation(
    *,
    nodes: int = 5_000,
    mean_degree: float = 12.0,
    classes: int = 8,
    features: int = 64,
    homophily: float = 0.7,
    degree_spread: float = 0.6,
    signal: float = 1.6,
    seed: int = 0,
) -> Graph:
    """Citation-like blocks: features are noisy, neighbours mostly share the class.

    mean_degree:   in-edges per node; the graph has `nodes * mean_degree` directed edges.
    homophily:     chance that an edge is drawn within a class (others join any two nodes).
    degree_spread: deviation of the logarithm of a node's expected degree; 0 for equal degrees.
    signal:        length of the class centroids in units of the noise.
    """
    require_sizes(nodes=nodes, classes=classes, features=features, seed=seed)
    require_at_least("mean_degree", mean_degree, 0)
    require_at_least("degree_spread", degree_spread, 0)
    require_fraction("homophily", homophily)
    rng = np.random.default_rng(seed)
    labels_n = rng.integers(classes, size=nodes, dtype=np.int32)
    low, high = distinct_pairs(
        _BlockModel(labels_n, classes, homophily, degree_spread, rng),
        count=round(nodes * mean_degree / 2),
        num_nodes=nodes,
        rng=rng,
    )
    senders_e, receivers_e = both_directions(low, high)
    return Graph(
        senders_e,
        receivers_e,
        noisy_centroids(labels_n, classes=classes, features=features, signal=signal, rng=rng),
        labels_n,
        random_splits(nodes, train=TRAIN_FRACTION, val=VAL_FRACTION, rng=rng),
        name="synthetic-citation",
    )


class _BlockModel:
    """Draws edges: a node by its weight, then one of its class or any, again by weight."""

    def __init__(
        self,
        labels_n: np.ndarray,
        classes: int,
        homophily: float,
        degree_spread: float,
        rng: np.random.Generator,
    ):
        self.homophily = homophily
        self.rng = rng
        # Nodes stand in order of their class, so that a class is one stretch of the running sum
        # of weights and a draw within a class is a draw from that stretch.
        self.node_at = np.argsort(labels_n, kind="stable").astype(np.int32)
        self.class_at = labels_n[self.node_at]
        weights = rng.lognormal(sigma=degree_spread, size=len(labels_n))
        self.ends = np.cumsum(weights)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(labels_n, minlength=classes))])
        self.class_bounds = np.concatenate([[0.0], self.ends])[bounds]

    def __call__(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        left = self._position(self.rng.random(count) * self.ends[-1])
        class_of_left = self.class_at[left]
        start = self.class_bounds[class_of_left]
        stop = self.class_bounds[class_of_left + 1]
        anywhere = self.rng.random(count, np.float32) >= self.homophily
        start[anywhere] = 0.0
        stop[anywhere] = self.ends[-1]
        right = self._position(start + self.rng.random(count) * (stop - start))
        return self.node_at[left], self.node_at[right]

    def _position(self, height: np.ndarray) -> np.ndarray:
        # Rounding may carry a draw to the very end of the running sum, hence the minimum.
        at = np.searchsorted(self.ends, height, side="right")
        return np.minimum(at, len(self.ends) - 1)

"""A citation-like graph whose classes a model can only tell by looking at neighbours.

Choose it to see that a graph model learns: features alone are too noisy, and averaging over a
neighbourhood removes the noise. The graph is a degree-corrected stochastic block model
(Karrer and Newman, "Stochastic blockmodels and community structure in networks", 2011).

Test accuracy of ridge regression at the default size, seeds 0 to 2 (a test keeps the figures
honest): 44 to 48 % on the features of the node alone, 88 to 91 % after averaging them over the
node and its neighbours once, 97 % after averaging twice. Chance is 12.5 %.
"""

import numpy as np

from gtjax.graph.generators.distinct_pairs import both_directions, distinct_pairs
from gtjax.graph.generators.node_data import noisy_centroids, random_splits
from gtjax.graph.generators.requirements import require_at_least, require_fraction, require_sizes
from gtjax.graph.graph import Graph

TRAIN_FRACTION = 0.1
VAL_FRACTION = 0.2

_SLOTS_PER_NODE = 16
_LEAST_SLOTS = 1 << 20


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
        self.labels_n = labels_n
        # Every node fills slots in proportion to its weight, so that a draw by weight is one
        # lookup (ten times faster than a search in the running sum of weights). Nodes stand in
        # order of their class, so that a draw within a class is a draw from one stretch of slots.
        node_at = np.argsort(labels_n, kind="stable").astype(np.int32)
        heights = np.cumsum(rng.lognormal(sigma=degree_spread, size=len(labels_n)))
        num_slots = max(_SLOTS_PER_NODE * len(labels_n), _LEAST_SLOTS)
        ends = np.rint(heights * (num_slots / heights[-1])).astype(np.int64)
        self.node_in_slot = np.repeat(node_at, np.diff(ends, prepend=0))
        nodes_before = np.cumsum(np.bincount(labels_n, minlength=classes))
        self.class_bounds = np.concatenate([[0], ends])[np.concatenate([[0], nodes_before])]

    def __call__(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        num_slots = len(self.node_in_slot)
        left = self.node_in_slot[self.rng.integers(num_slots, size=count)]
        class_of_left = self.labels_n[left]
        start = self.class_bounds[class_of_left]
        width = self.class_bounds[class_of_left + 1] - start
        anywhere = self.rng.random(count, np.float32) >= self.homophily
        start[anywhere] = 0
        width[anywhere] = num_slots
        slot = start + (self.rng.random(count) * width).astype(np.int64)
        return left, self.node_in_slot[slot]

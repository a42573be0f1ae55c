"""Draw train, val and test masks for data that comes without official ones.

Both draws depend on the seed, the split number and the labels alone, so they are the same on every
machine. Unlabelled nodes are in no mask.
"""

from __future__ import annotations

import numpy as np

from gtjax.graph.splits import Shares, mask_of, random_masks, shuffled_ranks


def stratified_split(labels_n: np.ndarray, seed: int, split: int) -> dict[str, np.ndarray]:
    """60 % train, 20 % val and 20 % test of every class, as Shchur et al. (2018) and others draw.

    Nodes with several labels, or with real numbers, count as one class.
    """
    return random_masks(labels_n, Shares(), [seed, split], stratified=True)


def few_per_class_split(labels_n: np.ndarray, seed: int, split: int) -> dict[str, np.ndarray]:
    """20 nodes of each class to train, then 500 to validate and 1000 to test, as in Planetoid.

    On small data: at most half of a class (at least one node) to train, at most a quarter of the
    rest to validate, and at most half of the rest to test.
    """
    order, rank, size = shuffled_ranks(labels_n, [seed, split])
    to_train = rank < np.clip(size // 2, 1, 20)
    rest = np.random.default_rng([seed, split, 1]).permutation(order[~to_train])
    num_val, num_test = min(500, len(rest) // 4), min(1000, len(rest) // 2)
    return {
        "train": mask_of(labels_n, order[to_train]),
        "val": mask_of(labels_n, rest[:num_val]),
        "test": mask_of(labels_n, rest[num_val : num_val + num_test]),
    }

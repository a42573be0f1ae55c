"""Draw train, val and test masks for data that comes without official ones.

Both draws depend on the seed, the split number and the labels alone, so they are the same on every
machine. Unlabelled nodes are in no mask.
"""

from __future__ import annotations

import numpy as np


def stratified_split(labels_n: np.ndarray, seed: int, split: int) -> dict[str, np.ndarray]:
    """60 % train, 20 % val and 20 % test of every class, as Shchur et al. (2018) and others draw.

    Multi-label nodes count as one class.
    """
    order, rank, size = _shuffled_ranks(labels_n, seed, split)
    quantile = (rank + 0.5) / size
    return {
        "train": _mask(labels_n, order[quantile < 0.6]),
        "val": _mask(labels_n, order[(quantile >= 0.6) & (quantile < 0.8)]),
        "test": _mask(labels_n, order[quantile >= 0.8]),
    }


def few_per_class_split(labels_n: np.ndarray, seed: int, split: int) -> dict[str, np.ndarray]:
    """20 nodes of each class to train, then 500 to validate and 1000 to test, as in Planetoid.

    On small data: at most half of a class (at least one node) to train, at most a quarter of the
    rest to validate, and at most half of the rest to test.
    """
    order, rank, size = _shuffled_ranks(labels_n, seed, split)
    to_train = rank < np.clip(size // 2, 1, 20)
    rest = np.random.default_rng([seed, split, 1]).permutation(order[~to_train])
    num_val, num_test = min(500, len(rest) // 4), min(1000, len(rest) // 2)
    return {
        "train": _mask(labels_n, order[to_train]),
        "val": _mask(labels_n, rest[:num_val]),
        "test": _mask(labels_n, rest[num_val : num_val + num_test]),
    }


def _shuffled_ranks(
    labels_n: np.ndarray, seed: int, split: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labelled nodes in random order within their class, with rank in and size of the class."""
    class_n = labels_n if labels_n.ndim == 1 else labels_n.max(axis=1).clip(max=0)
    nodes = np.random.default_rng([seed, split]).permutation(np.flatnonzero(class_n >= 0))
    nodes = nodes[np.argsort(class_n[nodes], kind="stable")]
    _, start, count = np.unique(class_n[nodes], return_index=True, return_counts=True)
    return nodes, np.arange(len(nodes)) - np.repeat(start, count), np.repeat(count, count)


def _mask(labels_n: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(labels_n), bool)
    mask[nodes] = True
    return mask

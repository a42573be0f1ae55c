"""What the generators put on nodes: noisy class centroids as features, and random masks."""

import numpy as np


def noisy_centroids(
    labels_n: np.ndarray,
    *,
    classes: int,
    features: int,
    signal: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Float32 [N, features]: a centroid of length about `signal` per class, plus unit noise.

    Two centroids lie about `signal * sqrt(2)` apart while the noise has deviation 1 in every
    direction, so a single node's class is uncertain at `signal` near 1 and certain at 5.
    """
    centroids = rng.standard_normal((classes, features), np.float32)
    centroids *= signal / np.sqrt(max(features, 1))
    x_nf = rng.standard_normal((len(labels_n), features), np.float32)
    rows = 1 << 16
    for start in range(0, len(labels_n), rows):  # in blocks, or a second array of x's size is made
        x_nf[start : start + rows] += centroids[labels_n[start : start + rows]]
    return x_nf


def random_splits(
    num_nodes: int, *, train: float, val: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Masks of a `train` and a `val` fraction of the nodes, and `test` for all the others."""
    order = rng.permutation(num_nodes)
    first = round(train * num_nodes)
    second = first + round(val * num_nodes)
    members = {"train": order[:first], "val": order[first:second], "test": order[second:]}
    splits = {}
    for name, nodes in members.items():
        splits[name] = np.zeros(num_nodes, bool)
        splits[name][nodes] = True
    return splits

"""Masks for train, val and test, drawn at random among what has a label.

A draw depends on its seed and on the labels alone, so it is the same on every machine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gtjax.core.errors import UserError

if TYPE_CHECKING:
    from gtjax.graph.graph import Graph

KINDS = ("random", "stratified")
_FORM = "random:60/20/20, or stratified:60/20/20, with a seed as in random:60/20/20:1"


@dataclass(frozen=True)
class Shares:
    """How much of the labelled is for which mask; what is left over is in none."""

    train: float = 0.6
    val: float = 0.2
    test: float = 0.2

    def __post_init__(self) -> None:
        for name, share in self._named():
            if not _is_number(share) or not 0 <= share <= 1:
                raise UserError(f"the share of {name} is in 0..1, such as 0.6; found {share!r}")
        if not self.train or sum(share for _, share in self._named()) > 1 + 1e-9:
            found = ", ".join(f"{name}={share:g}" for name, share in self._named())
            raise UserError(f"shares add up to at most 1, with some for train; found {found}")

    def bounds(self) -> list[tuple[str, float, float]]:
        """Each mask that is wanted, and from where to where it goes between 0 and 1."""
        bounds, end = [], 0.0
        for name, share in self._named():
            start, end = end, round(end + share, 9)  # so that shares of 1 leave nobody out
            if share:
                bounds.append((name, start, end))
        return bounds

    def _named(self) -> list[tuple[str, float]]:
        return [("train", self.train), ("val", self.val), ("test", self.test)]


@dataclass(frozen=True)
class RandomSplit:
    """A split that is asked for in words: `random:60/20/20`, `stratified:10/10/80:3`."""

    shares: Shares
    stratified: bool
    seed: int | None
    """None: that of what is being loaded."""

    @staticmethod
    def parse(text: str) -> RandomSplit:
        """What the words ask for: shares in per cent, or in parts of 1."""
        kind, _, rest = text.partition(":")
        shares, _, seed = rest.partition(":")
        try:
            if kind not in KINDS:
                raise ValueError
            numbers = [float(share) for share in shares.split("/")]
            train, val, test = numbers if max(numbers) <= 1 else [n / 100 for n in numbers]
            number = int(seed) if seed else None
            if number is not None and number < 0:
                raise ValueError
        except ValueError:
            raise UserError(f"a split is a number, or {_FORM}; found {text!r}") from None
        return RandomSplit(Shares(train, val, test), kind == "stratified", number)

    def of(self, graph: Graph, seed: int) -> Graph:
        """The graph with this split; `seed` where it has none of its own."""
        seed = seed if self.seed is None else self.seed
        shares = dataclasses.asdict(self.shares)
        return graph.with_random_splits(**shares, seed=seed, stratified=self.stratified)


def random_split_of(
    labels: np.ndarray,
    shares: Shares,
    seed: Any,
    name: str,
    *,
    stratified: bool,
) -> dict[str, np.ndarray]:
    """`random_masks` of the labels of a graph of this name, if it has any and the seed is one."""
    if not is_known(labels).any():
        raise UserError(
            f"a split is drawn among what has a label; {name} has no labels. Give them as "
            f"labels_n, or where there are many graphs as labels_g."
        )
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UserError(f"the seed of a split is an integer, 0 or more; found {seed!r}")
    return random_masks(labels, shares, int(seed), stratified=stratified)


def random_masks(
    labels: np.ndarray, shares: Shares, seed: int | Sequence[int], *, stratified: bool
) -> dict[str, np.ndarray]:
    """Masks of these shares of all that is labelled, or of every class.

    What has several labels, or real ones, counts as one class.
    """
    order, rank, size = shuffled_ranks(labels if stratified else _one_class(labels), seed)
    quantile = (rank + 0.5) / size
    return {
        name: mask_of(labels, order[(quantile >= start) & (quantile < end)])
        for name, start, end in shares.bounds()
    }


def shuffled_ranks(
    labels: np.ndarray, seed: int | Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labelled in random order within their class, with rank in and size of the class."""
    if labels.ndim == 2 or labels.dtype.kind == "f":
        labels = _one_class(labels)
    chosen = np.random.default_rng(seed).permutation(np.flatnonzero(labels >= 0))
    chosen = chosen[np.argsort(labels[chosen], kind="stable")]
    _, start, count = np.unique(labels[chosen], return_index=True, return_counts=True)
    return chosen, np.arange(len(chosen)) - np.repeat(start, count), np.repeat(count, count)


def mask_of(labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """A mask over what has these labels, from the numbers of those that it holds."""
    mask = np.zeros(len(labels), bool)
    mask[chosen] = True
    return mask


def is_known(labels: np.ndarray) -> np.ndarray:
    """Where there is a label, at least one of several."""
    known = ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0
    return known if known.ndim == 1 else np.asarray(known.any(axis=1))


def _one_class(labels: np.ndarray) -> np.ndarray:
    return is_known(labels).astype(np.int32) - 1


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return is_real and math.isfinite(float(value))

"""What a classifier got right: intervals, counts by class, calibration; numpy alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NORMAL_95 = 1.959963984540054
DRAWS = 1000
LEAST_DRAWS = 100
DRAWN_VALUES = 5e7  # over all draws: about a second


class Interval(NamedTuple):
    """Where a metric is with 95 % confidence, and how that was found."""

    low: float
    high: float
    how: str


def wilson(right: float, count: int) -> Interval:
    """Of a share: the interval of Wilson (1927), which also holds near 0 and 1."""
    share, square = right / count, NORMAL_95**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    spread = share * (1 - share) / count + square / (4 * count**2)
    half = NORMAL_95 * spread**0.5 / (1 + square / count)
    return Interval(max(0.0, middle - half), min(1.0, middle + half), f"Wilson, {count:,} nodes")


def bootstrap_roc_auc(score_nt: np.ndarray, label_nt: np.ndarray, seed: int = 0) -> Interval | None:
    """Of the mean area over questions; nodes are drawn with replacement, the same ones for all.

    Labels are 1, 0, and -1 where they are not known. None if no question has both answers.
    """
    count, random = len(score_nt), np.random.default_rng(seed)
    columns = [_Ranked(score_nt[:, t], label_nt[:, t]) for t in range(score_nt.shape[1])]
    columns = [each for each in columns if each.has_both]
    if not columns:
        return None
    draws = int(np.clip(DRAWN_VALUES / (count * len(columns)), LEAST_DRAWS, DRAWS))
    means = np.empty(draws)
    for draw in range(draws):
        times_n = np.bincount(random.integers(0, count, count), minlength=count).astype(float)
        areas = [each.area(times_n) for each in columns]
        means[draw] = np.nanmean(areas) if not np.isnan(areas).all() else np.nan
    low, high = np.nanquantile(means, [0.025, 0.975])
    return Interval(float(low), float(high), f"bootstrap, {draws:,} draws of {count:,} nodes")


def bootstrap_share(right_nt: np.ndarray, counted_nt: np.ndarray, seed: int = 0) -> Interval:
    """Of the share of answers that are right, where a node gives several: nodes are drawn."""
    count, random = len(right_nt), np.random.default_rng(seed)
    right_n, counted_n = (right_nt & counted_nt).sum(axis=1), counted_nt.sum(axis=1)
    shares = []
    for _ in range(int(np.clip(DRAWN_VALUES / count, LEAST_DRAWS, DRAWS))):
        drawn = random.integers(0, count, count)
        shares.append(right_n[drawn].sum() / max(1, counted_n[drawn].sum()))
    low, high = np.quantile(shares, [0.025, 0.975])
    how = f"bootstrap, {len(shares):,} draws of {count:,} nodes"
    return Interval(float(low), float(high), how)


def roc_auc(score_n: np.ndarray, label_n: np.ndarray) -> float:
    """The area over nodes that have a label; NaN without both answers."""
    return _Ranked(score_n, label_n).area(np.ones(len(score_n)))


class _Ranked:
    """Answers to one question in the order of their scores, to weigh again and again."""

    def __init__(self, score_n: np.ndarray, label_n: np.ndarray):
        known = np.flatnonzero(label_n >= 0)
        self.order = known[np.argsort(score_n[known], kind="stable")]
        ordered = score_n[self.order]
        self.yes = label_n[self.order] == 1
        # Where scores differ from the one before: ties count half.
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])

    @property
    def has_both(self) -> bool:
        return bool(self.yes.any() and not self.yes.all())

    def area(self, times_n: np.ndarray) -> float:
        """ROC-AUC where every node is there so many times; NaN without both answers."""
        times = times_n[self.order]
        yes = np.add.reduceat(np.where(self.yes, times, 0.0), self.starts)
        no = np.add.reduceat(np.where(self.yes, 0.0, times), self.starts)
        pairs = yes.sum() * no.sum()
        below = np.cumsum(no) - no / 2
        return float((yes * below).sum() / pairs) if pairs else float("nan")


class ClassScores(NamedTuple):
    """Of each class: nodes that are of it, and how well they are found; NaN over nothing."""

    support_c: np.ndarray
    precision_c: np.ndarray
    recall_c: np.ndarray
    f1_c: np.ndarray


def class_scores(hits_c: np.ndarray, said_c: np.ndarray, support_c: np.ndarray) -> ClassScores:
    """From nodes rightly said to be of a class, all said to be, and all that are."""
    with np.errstate(invalid="ignore"):
        return ClassScores(
            support_c, hits_c / said_c, hits_c / support_c, 2 * hits_c / (said_c + support_c)
        )


def largest_classes(label_n: np.ndarray, classes: int, most: int) -> list[int]:
    """The `most` classes with most nodes, in their order."""
    count_c = np.bincount(label_n, minlength=classes)
    return sorted(np.argsort(-count_c, kind="stable")[:most].tolist())


def places_among(class_n: np.ndarray, kept: list[int], classes: int) -> np.ndarray:
    """Where each class stands among those that are kept; all others come after them."""
    place_c = np.full(classes, len(kept))
    place_c[kept] = np.arange(len(kept))
    return place_c[class_n]


def confusion(label_n: np.ndarray, said_n: np.ndarray, classes: int) -> np.ndarray:
    """How many nodes of each class (rows) are said to be of each class (columns)."""
    pairs = np.bincount(label_n.astype(np.int64) * classes + said_n, minlength=classes * classes)
    return pairs.reshape(classes, classes)


class Calibration(NamedTuple):
    """In bins of how sure the model is: how sure, how often right, how many answers."""

    sure_b: np.ndarray
    right_b: np.ndarray
    count_b: np.ndarray
    ece: float  # expected calibration error: mean distance between the two


def calibration(sure_n: np.ndarray, right_n: np.ndarray, bins: int = 10) -> Calibration:
    """Over bins of the same width from 0 to 1; bins that nothing falls in are left out."""
    bin_n = np.minimum((sure_n * bins).astype(np.int64), bins - 1)
    count_b = np.bincount(bin_n, minlength=bins)
    there = count_b > 0
    sure_b = np.bincount(bin_n, weights=sure_n, minlength=bins)[there] / count_b[there]
    right_b = np.bincount(bin_n, weights=right_n, minlength=bins)[there] / count_b[there]
    ece = float((np.abs(sure_b - right_b) * count_b[there]).sum() / max(1, count_b.sum()))
    return Calibration(sure_b, right_b, count_b[there], ece)


def two_dimensions(rows_nf: np.ndarray) -> tuple[np.ndarray, float]:
    """Rows along their two principal components, and the share of the variance those hold."""
    rows_nf = rows_nf - rows_nf.mean(axis=0)
    left, size, _ = np.linalg.svd(rows_nf, full_matrices=False)
    place_nx = np.zeros((len(rows_nf), 2))
    place_nx[:, : min(2, len(size))] = (left * size)[:, :2]
    total = float((size**2).sum())
    return place_nx, float((size[:2] ** 2).sum()) / total if total else 1.0

"""How much of its neighbourhood each labelled node sees in its part, and weights that correct it.

Parts that train in isolation lose the edges between them. The coverage of a node is the share of
its neighbourhood that is in its part, itself included:

    c_v = (1 + in-edges of v from other nodes of its part) / (1 + in-edges of v from other nodes)

Were neighbours kept by chance, c_v would be the chance of each, so a gradient counts 1/c_v times as
in importance sampling. Gradients are summed by part, so there is one weight w_p a part; three forms
of it follow, by name in `WEIGHTS`. Weights are divided by their mean over the labelled nodes, which
changes neither the scale of the loss nor the learning rate. All are 1 where nothing is cut.

After Grappa (Xu, Siebenbrunner and Bindschaedler 2026, "Gradient-Only Communication for Scalable
Graph Neural Network Training"), which describes a coverage-corrected aggregation inspired by
importance sampling, a batch-level variant at minimum distance, and a shrinkage version; the
formulas are derived here from that description. It takes a count of the edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Partition


@dataclass(frozen=True, eq=False)
class Coverage:
    """What the counted nodes (labelled, for training) see of their neighbourhoods."""

    seen_n: np.ndarray  # of each counted node: itself and in-edges from others of its part
    all_n: np.ndarray  # the same from anywhere
    part_n: np.ndarray  # its part
    num_parts: int

    @staticmethod
    def of(graph: Graph, partition: Partition, counted_n: np.ndarray) -> Coverage:
        """Count the in-edges of the nodes where `counted_n` is true."""
        partition.check_fits(graph)
        from_others_e = graph.senders_e != graph.receivers_e
        owner_n = partition.owner_n
        near_e = from_others_e & (owner_n[graph.senders_e] == owner_n[graph.receivers_e])
        seen_n, all_n = (
            1 + np.bincount(graph.receivers_e[some_e], minlength=graph.num_nodes)[counted_n]
            for some_e in (near_e, from_others_e)
        )
        return Coverage(seen_n, all_n, owner_n[counted_n], partition.num_parts)

    @cached_property
    def count_p(self) -> np.ndarray:
        """Counted nodes of each part."""
        return np.bincount(self.part_n, minlength=self.num_parts)

    @cached_property
    def share_p(self) -> np.ndarray:
        """Coverage of each part: sum of what is seen over the sum of all; 1 without nodes."""
        seen_p, all_p = (
            np.bincount(self.part_n, count_n, self.num_parts)
            for count_n in (self.seen_n, self.all_n)
        )
        return np.divide(seen_p, all_p, out=np.ones(self.num_parts), where=all_p > 0)

    @property
    def summary(self) -> dict[str, float]:
        """Coverage over all counted nodes, and of the parts that see the least and the most."""
        there_p = self.share_p[self.count_p > 0]
        if not len(there_p):
            return {"mean": 1.0, "min": 1.0, "max": 1.0}
        mean = self.seen_n.sum() / self.all_n.sum()
        return {"mean": float(mean), "min": float(there_p.min()), "max": float(there_p.max())}


def none(coverage: Coverage) -> np.ndarray:
    """No correction: `w_p = 1`."""
    return np.ones(coverage.num_parts)


def importance(coverage: Coverage) -> np.ndarray:
    """Inverse of the part's coverage: `w_p = sum_v all_v / sum_v seen_v` over its counted nodes.

    Nodes with many neighbours count more, so that a few badly covered leaves do not decide.
    """
    return _with_mean_one(coverage, 1 / coverage.share_p)


def distance(coverage: Coverage) -> np.ndarray:
    """At the minimum distance to the weights of nodes: `w_p = mean_v 1/c_v`.

    It minimises `sum_v (w_p - 1/c_v)^2` over the part's counted nodes.
    """
    return _with_mean_one(coverage, _moments(coverage)[0])


def shrinkage(coverage: Coverage) -> np.ndarray:
    """`distance`, drawn towards 1 the more the less sure it is.

    `w_p = 1 + b_p (d_p - 1)` with `d_p` of `distance` and `b_p = B / (B + s_p^2 / n_p)`, where
    `s_p^2` is the variance of `1/c_v` within part p (over the square of its mean over all nodes,
    as `d_p` is), `n_p` the part's counted nodes, and `B` the variance of `d_p` over the nodes:
    the estimate of empirical Bayes (Efron and Morris 1973).
    """
    mean_p, variance_p = _moments(coverage)
    scale = _mean_over_nodes(coverage, mean_p)
    mean_p, variance_p = mean_p / scale, variance_p / scale**2
    between = _mean_over_nodes(coverage, np.square(mean_p - 1))
    noise_p = variance_p / np.maximum(coverage.count_p, 1)
    total_p = between + noise_p
    trust_p = np.divide(between, total_p, out=np.zeros_like(total_p), where=total_p > 0)
    return _with_mean_one(coverage, 1 + trust_p * (mean_p - 1))


WEIGHTS: dict[str, Callable[[Coverage], np.ndarray]] = {
    "none": none,
    "importance": importance,
    "distance": distance,
    "shrinkage": shrinkage,
}


def _moments(coverage: Coverage) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of `1/c_v` in each part; 1 and 0 in parts without counted nodes."""
    inverse_n, count_p = coverage.all_n / coverage.seen_n, np.maximum(coverage.count_p, 1)
    mean_p = np.bincount(coverage.part_n, inverse_n, coverage.num_parts) / count_p
    mean_p[coverage.count_p == 0] = 1
    apart_n = np.square(inverse_n - mean_p[coverage.part_n])
    return mean_p, np.bincount(coverage.part_n, apart_n, coverage.num_parts) / count_p


def _mean_over_nodes(coverage: Coverage, value_p: np.ndarray) -> float:
    total = coverage.count_p.sum()
    return float((value_p * coverage.count_p).sum() / total) if total else 1.0


def _with_mean_one(coverage: Coverage, weight_p: np.ndarray) -> np.ndarray:
    return weight_p / _mean_over_nodes(coverage, weight_p)

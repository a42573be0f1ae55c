"""Two models that cost seconds and are hard to beat on some graphs: what is chosen is held against
them.

Label propagation (Zhou et al. 2004) knows labels and edges, and a linear model on features that are
propagated (Wu et al. 2019) knows everything but is linear. Both in numpy and scipy; their settings
are chosen by validation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from gtjax.graph import Graph
from gtjax.runs.report.scores import roc_auc

ROUNDS = 50  # of label propagation
ITERATIONS = 150  # of the linear model's optimiser


@dataclass(frozen=True)
class Baseline:
    """A simple model: what it is, how it validates, and its scores of all nodes."""

    name: str
    val: float
    scores_nc: np.ndarray


def baselines(graph: Graph, metric: str, seconds: float) -> list[Baseline]:
    """Those that suit the labels of a graph: of classification into one class alone.

    Metrics are accuracy or, of two classes, ROC-AUC; others are not compared.
    """
    if graph.is_real or graph.is_multilabel or metric not in ("accuracy", "roc_auc"):
        return []
    until = time.monotonic() + seconds
    spread = _symmetric(graph)
    found = [_propagated_labels(graph, spread, metric)]
    if graph.num_features:
        found.append(_linear(graph, spread, metric, until))
    return found


def scored(scores_nc: np.ndarray, labels_n: np.ndarray, mask_n: np.ndarray, metric: str) -> float:
    """Accuracy, or the area under the ROC curve, over the labelled nodes of a mask."""
    at = np.flatnonzero(mask_n & (labels_n >= 0))
    if not len(at):
        return float("nan")
    if metric == "accuracy":
        return float((scores_nc[at].argmax(axis=1) == labels_n[at]).mean())
    return roc_auc(scores_nc[at, 1] - scores_nc[at, 0], labels_n[at])


def _symmetric(graph: Graph) -> sp.csr_array:
    """Edges both ways and loops, with weights one over the roots of both degrees."""
    nodes = graph.num_nodes
    ones = np.ones(graph.num_edges, np.float32)
    edges = sp.csr_array((ones, (graph.receivers_e, graph.senders_e)), (nodes, nodes))
    both = sp.csr_array(((edges + edges.T) > 0).astype(np.float32) + sp.eye_array(nodes))
    scale = sp.diags_array(1 / np.sqrt(np.asarray(both.sum(axis=1)).ravel()))
    return sp.csr_array(scale @ both @ scale, dtype=np.float32)


def _propagated_labels(graph: Graph, spread: sp.csr_array, metric: str) -> Baseline:
    train_n, val_n = graph.split_n["train"] & graph.labelled, graph.split_n["val"]
    start_nc = np.zeros((graph.num_nodes, graph.num_classes), np.float32)
    start_nc[train_n, graph.labels_n[train_n]] = 1
    found = []
    for share in (0.5, 0.9, 0.99):
        mixed_nc = start_nc
        for _ in range(ROUNDS):
            mixed_nc = share * (spread @ mixed_nc) + (1 - share) * start_nc
        mixed_nc = mixed_nc / np.maximum(mixed_nc.sum(axis=1, keepdims=True), 1e-12)
        val = scored(mixed_nc, graph.labels_n, val_n, metric)
        found.append(Baseline("label propagation", val, mixed_nc))
    return max(found, key=lambda each: each.val)


def _linear(graph: Graph, spread: sp.csr_array, metric: str, until: float) -> Baseline:
    found = []
    for rounds, decay in ((2, 1e-5), (1, 1e-5), (2, 1e-3), (4, 1e-5), (0, 1e-5)):
        if found and time.monotonic() > until:
            break
        scores_nc = _fitted(graph, spread, rounds, decay, until)
        val = scored(scores_nc, graph.labels_n, graph.split_n["val"], metric)
        found.append(Baseline("linear model on propagated features", val, scores_nc))
    return max(found, key=lambda each: each.val)


def _fitted(
    graph: Graph, spread: sp.csr_array, rounds: int, decay: float, until: float
) -> np.ndarray:
    """Scores of a softmax regression, fitted by L-BFGS; features stay as sparse as they are."""
    x_nf = sp.csr_array(graph.x_nf.astype(np.float32))
    total_n = np.asarray(abs(x_nf).sum(axis=1)).ravel()
    x_nf = sp.csr_array(sp.diags_array(1 / np.maximum(total_n, 1e-12)) @ x_nf)
    x_nf = x_nf * np.float32(np.sqrt(graph.num_features))
    train_n = np.flatnonzero(graph.split_n["train"] & graph.labelled)
    labels, shape = graph.labels_n[train_n], (graph.num_features + 1, graph.num_classes)
    every = np.arange(len(train_n))

    def forward(w_fc: np.ndarray) -> np.ndarray:
        scores_nc = x_nf @ w_fc[:-1] + w_fc[-1]
        for _ in range(rounds):
            scores_nc = spread @ scores_nc
        return scores_nc

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w_fc = flat.reshape(shape).astype(np.float32)
        scores = forward(w_fc)[train_n]
        scores -= scores.max(axis=1, keepdims=True)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = -log_p[every, labels].mean() + decay * float((w_fc[:-1] ** 2).sum())
        part = np.exp(log_p)
        part[every, labels] -= 1
        back_nc = np.zeros((graph.num_nodes, shape[1]), np.float32)
        back_nc[train_n] = part / len(train_n)
        for _ in range(rounds):
            back_nc = spread @ back_nc  # it is symmetric
        gradient = np.vstack([x_nf.T @ back_nc + 2 * decay * w_fc[:-1], back_nc.sum(axis=0)])
        return float(value), gradient.ravel().astype(np.float64)

    class _OverError(Exception):
        pass

    best = [np.zeros(shape[0] * shape[1])]

    def keep(flat: np.ndarray) -> None:
        best[0] = flat
        if time.monotonic() > until:
            raise _OverError

    try:
        options = {"maxiter": ITERATIONS}
        best[0] = minimize(
            loss, best[0], jac=True, method="L-BFGS-B", callback=keep, options=options
        ).x
    except _OverError:
        pass
    return forward(best[0].reshape(shape).astype(np.float32))

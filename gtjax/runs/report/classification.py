"""What the report says of a classifier of nodes: class by class, how sure, where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from gtjax.graph import Names
from gtjax.runs.report import class_figures as pictures
from gtjax.runs.report.chapter import Chapter
from gtjax.runs.report.page import beside, figure, folded, paragraph, section, table
from gtjax.runs.report.scores import (
    ClassScores,
    Interval,
    bootstrap_roc_auc,
    bootstrap_share,
    calibration,
    class_scores,
    confusion,
    largest_classes,
    places_among,
    two_dimensions,
    wilson,
)
from gtjax.runs.report.seen import Seen
from gtjax.tasks.node import NodeClassification

MOST_CLASSES = 12  # shown in a matrix and in colours; all others are one
MOST_POINTS = 5000
MOST_TESTED = 500_000  # test nodes that figures are made of
WORST = 15
NOT_HERE = (
    "Figures by class, calibration and embeddings are left out: in a run of several processes no "
    "process has the outputs of all nodes. `gtjax predict` on one machine writes them."
)


def chapter(task: NodeClassification, seen: Seen, result: dict[str, Any]) -> Chapter:
    """Of the test nodes that have labels."""
    if not seen.is_here:
        return Chapter(None, (paragraph(NOT_HERE),))
    label_n = seen.target("labels")
    known_n = (label_n >= 0).any(axis=1) if task.multilabel else label_n >= 0
    at = seen.places(seen.target("test") & known_n)
    if not len(at):
        said = paragraph("No test node has a label, so there is nothing to hold predictions to.")
        return Chapter(None, (said, _embeddings(task, seen)))
    drawn, note = _drawn(at, MOST_TESTED), ""
    if len(drawn) < len(at):
        note = paragraph(f"From {len(drawn):,} of the {len(at):,} test nodes, drawn at random.")
    node_n, label_n = seen.node_ids(drawn), label_n[drawn]
    logits_nc = seen.read(seen.outputs.outputs, drawn)
    if task.multilabel:
        interval, parts, worst = _questions(task, seen.names, node_n, label_n, logits_nc)
    else:
        interval, parts, worst = _classes(task, seen.names, node_n, label_n, logits_nc)
    if task.metric == "accuracy" and not task.multilabel:
        interval = wilson(result["test_accuracy"] * len(at), len(at))
    shown = beside(*parts, _embeddings(task, seen))
    return Chapter(
        interval, (section("Class by class", note, shown), section("Predicted worst", *worst))
    )


def _classes(
    task: NodeClassification,
    called: Names,
    node_n: np.ndarray,
    label_n: np.ndarray,
    logits_nc: np.ndarray,
) -> tuple[Interval | None, list[str], list[str]]:
    """One of several classes a node."""
    classes, said_n, every = task.num_classes, logits_nc.argmax(axis=1), np.arange(len(node_n))
    p_nc = np.exp(logits_nc - logits_nc.max(axis=1, keepdims=True))
    p_nc /= p_nc.sum(axis=1, keepdims=True)
    right_n, sure_n, true_n = said_n == label_n, p_nc[every, said_n], p_nc[every, label_n]
    hits_c, said_c, there_c = (
        np.bincount(each, minlength=classes) for each in (label_n[right_n], said_n, label_n)
    )
    interval = None
    if task.metric == "roc_auc":
        score_n1 = (logits_nc[:, 1] - logits_nc[:, 0])[:, None]
        interval = bootstrap_roc_auc(score_n1, label_n[:, None])
    kept = largest_classes(label_n, classes, MOST_CLASSES)
    names = [called.of_class(each) for each in kept] + ["other"] * (len(kept) < classes)
    counts = confusion(
        places_among(label_n, kept, classes), places_among(said_n, kept, classes), len(names)
    )
    which = "the 12 largest classes and all others" if len(kept) < classes else "the test nodes"
    matrix = figure(
        pictures.heat_map(counts, names),
        f"Confusion matrix of {which}: how many nodes of each class (row) were predicted to be of "
        "each class (column). The stronger the colour, the larger the share of the row.",
    )
    worst = np.argsort(true_n, kind="stable")[:WORST]
    worst = worst[~right_n[worst]]
    rows = [
        (
            called.of_node(int(node_n[i])),
            called.of_class(int(label_n[i])),
            called.of_class(int(said_n[i])),
            float(sure_n[i]),
            float(true_n[i]),
        )
        for i in worst
    ]
    columns = ("node", "true class", "predicted", "its probability", "of the true class")
    scores = class_scores(hits_c, said_c, there_c)
    sure = pictures.reliability(calibration(sure_n, right_n), f"{len(node_n):,} of them")
    return interval, [_by_class("class", called, scores, kept), matrix, sure], _worst(columns, rows)


def _questions(
    task: NodeClassification,
    called: Names,
    node_n: np.ndarray,
    label_nt: np.ndarray,
    logits_nt: np.ndarray,
) -> tuple[Interval | None, list[str], list[str]]:
    """Several yes/no questions a node."""
    known_nt, yes_nt, said_nt = label_nt >= 0, label_nt == 1, logits_nt > 0
    right_nt = (said_nt == yes_nt) & known_nt
    sure_nt = 1 / (1 + np.exp(-np.abs(logits_nt)))
    if task.metric == "roc_auc":
        interval = bootstrap_roc_auc(logits_nt, label_nt)
    else:
        interval = bootstrap_share(right_nt, known_nt)
    hits_t, said_t, there_t = (
        each.sum(axis=0) for each in (right_nt & yes_nt, said_nt & known_nt, yes_nt)
    )
    kept = sorted(np.argsort(-there_t, kind="stable")[:MOST_CLASSES].tolist())
    true_nt = np.where(right_nt, sure_nt, 1 - sure_nt)
    at = np.argsort(np.where(known_nt, true_nt, np.inf), axis=None, kind="stable")[:WORST]
    answer = ("no", "yes")
    rows = [
        (
            called.of_node(int(node_n[n])),
            called.of_class(int(t)),
            answer[int(yes_nt[n, t])],
            answer[int(said_nt[n, t])],
            float(true_nt[n, t]),
        )
        for n, t in zip(*np.unravel_index(at, true_nt.shape), strict=True)
        if known_nt[n, t] and not right_nt[n, t]
    ]
    columns = ("node", "question", "truth", "predicted", "probability of the truth")
    found = calibration(sure_nt[known_nt], right_nt[known_nt])
    sure = pictures.reliability(found, f"{int(known_nt.sum()):,} answers")
    scores = class_scores(hits_t, said_t, there_t)
    return interval, [_by_class("question", called, scores, kept), sure], _worst(columns, rows)


def _by_class(what: str, called: Names, scores: ClassScores, kept: list[int]) -> str:
    """The largest classes, and all of them folded."""
    columns = (what, "test nodes", "precision", "recall", "F1")
    rows = [
        (called.of_class(c), int(support), *(float(each) for each in rest))
        for c, (support, *rest) in enumerate(zip(*scores, strict=True))
    ]
    shown = table(columns, [rows[c] for c in kept])
    if len(kept) == len(rows):
        return f"<div>{shown}</div>"
    every = folded(f"All {len(rows):,}", table(columns, rows))
    return f"<div>{shown}{every}</div>"


def _worst(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    if not rows:
        return [paragraph("Every test node is predicted rightly.")]
    said = "The test nodes whose truth is least probable to the model: look at their labels first."
    return [paragraph(said), table(columns, rows)]


def _embeddings(task: NodeClassification, seen: Seen) -> str:
    """Some nodes along the principal components of their embeddings."""
    at = _drawn(seen.places(), MOST_POINTS)
    label_n, what = seen.target("labels")[at], "class"
    if task.multilabel:  # the question whose answers are nearest to even
        evenness_t = np.minimum((label_n == 1).sum(axis=0), (label_n == 0).sum(axis=0))
        question = int(evenness_t.argmax())
        label_n, what = label_n[:, question], f"answer to {seen.names.of_class(question)}"
    classes = 2 if task.multilabel else task.num_classes
    labelled_n = label_n >= 0
    kept = largest_classes(label_n[labelled_n], classes, MOST_CLASSES)
    group_n = np.where(labelled_n, places_among(np.maximum(label_n, 0), kept, classes), -1)
    called = Names(classes=("no", "yes")) if task.multilabel else seen.names
    names = [called.of_class(each) for each in kept] + ["other"] * (len(kept) < classes)
    place_nx, share = two_dimensions(seen.read(seen.outputs.embeddings_nf, at))
    return figure(
        pictures.scatter(place_nx, group_n, names),
        f"Embeddings of {len(at):,} nodes by {what}, along the two directions in which they differ "
        f"most (principal components, {100 * share:.0f} % of the variance)."
        + ("" if labelled_n.all() else " Grey ones have no label."),
    )


def _drawn(at: np.ndarray, most: int) -> np.ndarray:
    """As many at random, always the same, in their order."""
    if len(at) <= most:
        return at
    return at[np.sort(np.random.default_rng(0).choice(len(at), most, replace=False))]

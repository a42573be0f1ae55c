"""What the report says of kinds of labels, from outputs that are made up."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gtjax.batching.prepare import Batch
from gtjax.nn import Inputs
from gtjax.runs.program import Outputs
from gtjax.runs.report import classification, figures, scores
from gtjax.runs.report.seen import Seen
from gtjax.runs.report.story import chapter_of
from gtjax.tasks.node import NodeClassification, roc_auc
from tests.runs.html_page import Page
from tests.toys.task import Regression

NODES = 400


@pytest.fixture(scope="module", autouse=True)
def figures_drawn_once():
    """Not here: every figure is drawn."""


def made_up(task, labels, logits, *, test=True, seed=0):
    """Outputs as a run has them: in another order than the graph's, with padding between."""
    rng = np.random.default_rng(seed)
    rows = len(labels) + 7
    ids_n = np.full(rows, len(labels))
    place = rng.permutation(rows)[: len(labels)]
    ids_n[place] = np.arange(len(labels))

    def spread(values):
        result = np.zeros((rows, *values.shape[1:]), values.dtype)
        result[place] = values
        return result

    masks = {"test": spread(np.full(len(labels), test))}
    embeddings = spread(rng.normal(size=(len(labels), 5)).astype(np.float32))
    inputs = Inputs(x_nf=embeddings, node_ids_n=ids_n, valid_n=ids_n < len(labels))
    batch = Batch(inputs, None, {"labels": spread(labels), **masks})
    return Seen(task, Outputs(spread(logits.astype(np.float32)), embeddings), batch)


def chapter(seen, **result):
    found = chapter_of(seen, result)
    return found.interval, Page("".join(found.parts))


def test_many_classes_are_gathered_and_all_of_them_folded():
    rng = np.random.default_rng(1)
    labels = np.minimum(rng.geometric(0.15, NODES), 30) - 1
    logits = rng.normal(size=(NODES, 30)) + 3 * np.eye(30)[labels]
    task = NodeClassification(30, False, "accuracy")
    share = float((logits.argmax(axis=1) == labels).mean())
    interval, page = chapter(made_up(task, labels, logits), test_accuracy=share)
    assert interval.low < share < interval.high
    assert page.mistakes == []
    said_n, kept = logits.argmax(axis=1), np.argsort(-np.bincount(labels), kind="stable")[:12]
    others = (~np.isin(labels, kept) & ~np.isin(said_n, kept)).sum()
    assert f"{others} of class other predicted as other" in " ".join(page.words)
    assert "All 30" in page.words
    assert sum(len(row) == 5 and row[0] == "0" for row in page.rows) == 2  # shown, and folded


def test_yes_and_no_questions():
    rng = np.random.default_rng(2)
    labels = rng.integers(-1, 2, (NODES, 3))
    logits = rng.normal(size=(NODES, 3)) + 1.5 * (labels == 1)
    seen = made_up(NodeClassification(3, True, "roc_auc"), labels, logits)
    areas = [float(roc_auc(logits[:, t], labels[:, t] == 1, labels[:, t] >= 0)) for t in range(3)]
    interval, page = chapter(seen)
    assert interval.low < np.mean(areas) < interval.high
    assert page.mistakes == []
    known, yes, said = labels >= 0, labels == 1, logits > 0
    for t in range(3):
        both = (yes & said)[:, t].sum()
        precision, recall = both / (said & known)[:, t].sum(), both / yes[:, t].sum()
        (row,) = (
            row for row in page.rows if len(row) == 5 and row[:2] == [str(t), str(yes[:, t].sum())]
        )
        assert row[2:4] == [f"{precision:.4f}", f"{recall:.4f}"]
    assert any("yes" in row and "no" in row for row in page.rows)
    by_answers, _ = chapter(made_up(NodeClassification(3, True, "accuracy"), labels, logits))
    assert by_answers.low < (said == yes)[known].mean() < by_answers.high


def test_two_classes_by_roc_auc():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, NODES)
    logits = np.stack([np.zeros(NODES), rng.normal(size=NODES) + labels], axis=1)
    interval, _ = chapter(made_up(NodeClassification(2, False, "roc_auc"), labels, logits))
    area = float(roc_auc(logits[:, 1], labels == 1, labels >= 0))
    assert interval.low < area < interval.high
    assert interval.high - interval.low < 0.15


def test_without_labels_to_test_or_mistakes_it_says_so():
    labels, logits = np.arange(NODES) % 3, 9 * np.eye(3)[np.arange(NODES) % 3]
    task = NodeClassification(3, False, "accuracy")
    interval, page = chapter(made_up(task, labels, logits, test=False))
    assert interval is None
    assert "No test node has a label" in page.text
    assert len(page.figures) == 1  # of embeddings
    _, page = chapter(made_up(task, labels, logits), test_accuracy=1.0)
    assert "Every test node is predicted rightly." in page.words


def test_what_other_processes_have_is_left_out(monkeypatch):
    seen = made_up(NodeClassification(2, False, "accuracy"), np.zeros(3, int), np.zeros((3, 2)))
    monkeypatch.setattr(Seen, "is_here", False)
    assert chapter_of(seen, {}).interval is None
    assert chapter_of(seen, {}).parts[0].startswith("<p>Figures by class")


def test_other_tasks_have_metrics_and_curves_alone():
    seen = made_up(Regression(), np.zeros(3, int), np.zeros((3, 1)))
    assert chapter_of(seen, {}) == (None, ())


def test_a_picture_of_embeddings_has_no_more_points_than_one_can_see():
    count = classification.MOST_POINTS + 500
    labels = np.arange(count) % 4
    task = NodeClassification(4, False, "accuracy")
    seen = made_up(task, labels, np.eye(4)[labels], test=False)
    page = chapter_of(seen, {}).parts[-1]
    assert page.count("h0") == classification.MOST_POINTS
    assert len(page) < 1e5
    assert set(re.findall(r'stroke="var\((--\w+)\)"', page)) == {"--c0", "--c1", "--c2", "--c3"}


@pytest.mark.parametrize("ties", [False, True])
def test_an_area_with_weights_is_that_of_nodes_repeated(ties):
    rng = np.random.default_rng(4)
    score_n, label_n = rng.normal(size=60), rng.integers(-1, 2, 60)
    score_n = np.round(score_n) if ties else score_n
    times_n = rng.integers(0, 4, 60)
    repeated = np.repeat(np.arange(60), times_n)
    yes = score_n[repeated][label_n[repeated] == 1]
    no = score_n[repeated][label_n[repeated] == 0]
    above = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    found = scores._Ranked(score_n, label_n).area(times_n.astype(float))
    assert found == pytest.approx(above)


def test_principal_components_hold_the_variance_they_say():
    rng = np.random.default_rng(5)
    rows_nf = rng.normal(size=(50, 2)) @ rng.normal(size=(2, 6)) + 3
    place_nx, share = scores.two_dimensions(rows_nf)
    assert share == pytest.approx(1)
    distance = np.linalg.norm(rows_nf[:, None] - rows_nf, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(place_nx[:, None] - place_nx, axis=-1), distance)
    assert scores.two_dimensions(np.ones((4, 1)))[0].tolist() == [[0, 0]] * 4


def test_a_long_curve_is_drawn_by_means():
    points = [(step, float(step % 2)) for step in range(1, 3001)]
    thin, size = figures._thinned(points)
    assert (len(thin), size) == (1500, 2)
    assert {value for _, value in thin} == {0.5}
    assert thin[-1][0] == 3000
    assert figures._thinned(points[:9]) == (points[:9], 1)
    page = figures.curves([{"step": s, "loss": v} for s, v in points], "roc_auc", 7)
    assert "as means of 2 steps" in page
    assert "Validation and test ROC-AUC" in page

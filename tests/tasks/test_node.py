"""Loss and metrics against plain loops over nodes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.tasks.base import TaskSettings
from gtjax.tasks.node import NodeClassification, roc_auc

NODES, CLASSES = 13, 4


def make_graph(labels_n, train=(0, 1, 2), val=(3, 4)):
    split_n = {}
    for name, nodes in (("train", train), ("val", val)):
        split_n[name] = np.isin(np.arange(NODES), nodes)
    return Graph([0], [1], np.zeros((NODES, 2)), labels_n, split_n, name="toy")


def draw(multilabel=False, seed=0):
    """Logits, labels (some unknown) and a mask."""
    rng = np.random.default_rng(seed)
    shape = (NODES, CLASSES) if multilabel else NODES
    labels = rng.integers(-1, 2 if multilabel else CLASSES, shape)
    return rng.normal(0, 3, (NODES, CLASSES)), labels, rng.random(NODES) < 0.6


@pytest.mark.parametrize("smooth", [0.0, 0.1, 0.7])
def test_the_loss_is_the_cross_entropy_to_the_smoothed_target(smooth):
    logits, labels, mask = draw()
    losses = []
    for i in range(NODES):
        if mask[i] and labels[i] >= 0:
            p = np.exp(logits[i]) / np.exp(logits[i]).sum()
            target = (1 - smooth) * np.eye(CLASSES)[labels[i]] + smooth / CLASSES
            losses.append(-(target * np.log(p)).sum())
    assert 0 < len(losses) < mask.sum()  # some of the counted nodes are unlabelled
    got = NodeClassification(CLASSES, False, "accuracy", smooth).cross_entropy(
        jnp.asarray(logits), labels, mask
    )
    np.testing.assert_allclose(got, np.mean(losses), rtol=1e-5)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_validation_loss_is_that_of_the_nodes_of_val(multilabel):
    logits, labels, mask = draw(multilabel)
    task = NodeClassification(CLASSES, multilabel, "accuracy", 0.1)
    targets = {"labels": labels, "train": ~mask, "val": mask}
    wanted = task.cross_entropy(jnp.asarray(logits), labels, mask)
    assert task.validation_loss(jnp.asarray(logits), targets) == wanted
    assert task.loss(jnp.asarray(logits), targets) != wanted


@pytest.mark.parametrize("smooth", [0.0, 0.2])
def test_the_multi_label_loss_leaves_unknown_answers_out(smooth):
    logits, labels, mask = draw(multilabel=True)
    losses = []
    for i, t in np.ndindex(NODES, CLASSES):
        if mask[i] and labels[i, t] >= 0:
            p = 1 / (1 + np.exp(-logits[i, t]))
            y = labels[i, t] * (1 - smooth) + smooth / 2
            losses.append(-y * np.log(p) - (1 - y) * np.log(1 - p))
    got = NodeClassification(CLASSES, True, "roc_auc", smooth).cross_entropy(
        jnp.asarray(logits), labels, mask
    )
    np.testing.assert_allclose(got, np.mean(losses), rtol=1e-5)


@pytest.mark.parametrize("multilabel", [False, True])
def test_weights_multiply_the_losses_of_nodes_and_leave_the_count_alone(multilabel):
    logits, labels, mask = draw(multilabel)
    task = NodeClassification(CLASSES, multilabel, "accuracy")
    weight_n = np.random.default_rng(1).random(NODES)
    known = labels >= 0
    counted = mask[:, None] & known if multilabel else mask & known
    want = 0.0
    for i in np.flatnonzero(mask):
        alone = np.arange(NODES) == i
        mine = counted[i].sum()
        want += weight_n[i] * mine * task.cross_entropy(jnp.asarray(logits), labels, alone)
    got = task.cross_entropy(jnp.asarray(logits), labels, mask, jnp.asarray(weight_n))
    np.testing.assert_allclose(got, want / counted.sum(), rtol=1e-5)


@pytest.mark.parametrize("multilabel", [False, True])
def test_nodes_that_do_not_count_get_no_gradient_even_if_they_overflow(multilabel):
    logits, labels, mask = draw(multilabel)
    logits[~mask] = 1e30
    task = NodeClassification(CLASSES, multilabel, "accuracy")
    grad = jax.grad(task.cross_entropy)(jnp.asarray(logits, jnp.float32), labels, mask)
    assert np.isfinite(grad).all()
    assert (np.asarray(grad)[~mask] == 0).all()
    assert (np.asarray(grad)[mask & (labels.reshape(NODES, -1).max(axis=1) >= 0)] != 0).any()


def test_a_step_with_nothing_to_predict_has_no_loss_and_no_gradient():
    logits, labels, _ = draw()
    nobody = np.zeros(NODES, bool)
    loss, grad = jax.value_and_grad(NodeClassification(CLASSES, False, "accuracy").cross_entropy)(
        jnp.asarray(logits), labels, nobody
    )
    assert loss == 0
    assert (np.asarray(grad) == 0).all()


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_cross_entropy_can_be_what_is_validated_and_is_better_the_smaller(multilabel):
    logits, labels, mask = draw(multilabel)
    targets = {"labels": labels, "train": ~mask, "val": mask}
    task = NodeClassification(CLASSES, multilabel, "cross_entropy", label_smoothing=0.1)
    scores = task.metrics(jnp.asarray(logits), targets, "val")
    assert scores["cross_entropy"] == task.validation_loss(jnp.asarray(logits), targets)
    assert "accuracy" in scores
    assert task.goodness(0.2) > task.goodness(0.3)


def test_accuracy_counts_the_labelled_nodes_of_the_mask():
    logits, labels, mask = draw(seed=3)
    right = [logits[i].argmax() == labels[i] for i in range(NODES) if mask[i] and labels[i] >= 0]
    metrics = NodeClassification(CLASSES, False, "accuracy").scores(
        jnp.asarray(logits), labels, mask
    )
    assert set(metrics) == {"accuracy"}
    np.testing.assert_allclose(metrics["accuracy"], np.mean(right), rtol=1e-6)


def naive_roc_auc(score, positive, counted):
    pairs = [
        (score[i] > score[j]) + 0.5 * (score[i] == score[j])
        for i in range(len(score))
        for j in range(len(score))
        if counted[i] and counted[j] and positive[i] and not positive[j]
    ]
    return np.mean(pairs) if pairs else np.nan


score_and_masks = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        hnp.arrays(np.float32, size, elements=st.integers(-3, 3).map(float)),  # many ties
        hnp.arrays(bool, size),
        hnp.arrays(bool, size),
    )
)


@settings(deadline=None)
@given(score_and_masks)
def test_roc_auc_is_the_share_of_pairs_in_order(drawn):
    # Padded to one size, so that it compiles once; padding is never counted.
    score, positive, counted = (np.pad(array, (0, 12 - len(array))) for array in drawn)
    got = roc_auc(jnp.asarray(score), positive, counted)
    np.testing.assert_allclose(got, naive_roc_auc(score, positive, counted), atol=1e-6)


def test_roc_auc_is_exact_enough_over_many_nodes():
    rng = np.random.default_rng(0)
    positive = rng.random(200_000) < 0.3
    score = (rng.normal(0, 1, 200_000) + positive).astype(np.float32)
    ranks = np.empty(len(score))
    ranks[np.argsort(score, kind="stable")] = np.arange(1, len(score) + 1)
    assert len(np.unique(score)) > 0.9 * len(score)
    p = positive.sum()
    want = (ranks[positive].sum() - p * (p + 1) / 2) / (p * (len(score) - p))
    got = roc_auc(jnp.asarray(score), positive, np.ones(len(score), bool))
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_two_classes_are_ranked_by_the_difference_of_their_logits():
    logits, labels, mask = draw(seed=5)
    labels = np.minimum(labels, 1)
    metrics = NodeClassification(2, False, "roc_auc").scores(
        jnp.asarray(logits[:, :2]), labels, mask
    )
    want = naive_roc_auc(logits[:, 1] - logits[:, 0], labels == 1, mask & (labels >= 0))
    np.testing.assert_allclose(metrics["roc_auc"], want, rtol=1e-5)


def test_multi_label_metrics_leave_out_tasks_with_one_answer_only():
    logits, labels, mask = draw(multilabel=True, seed=7)
    labels[:, 2] = 1
    metrics = NodeClassification(CLASSES, True, "roc_auc").scores(jnp.asarray(logits), labels, mask)
    areas = [
        naive_roc_auc(logits[:, t], labels[:, t] == 1, mask & (labels[:, t] >= 0))
        for t in (0, 1, 3)
    ]
    np.testing.assert_allclose(metrics["roc_auc"], np.mean(areas), rtol=1e-5)
    known = mask[:, None] & (labels >= 0)
    want = ((logits > 0) == (labels == 1))[known].mean()
    np.testing.assert_allclose(metrics["accuracy"], want, rtol=1e-6)


def test_metrics_of_no_nodes_do_not_exist():
    logits, labels, _ = draw(multilabel=True)
    metrics = NodeClassification(CLASSES, True, "roc_auc").scores(
        jnp.asarray(logits), labels, np.zeros(NODES, bool)
    )
    assert all(np.isnan(value) for value in metrics.values())


def test_the_task_follows_from_the_labels():
    labels = np.arange(NODES) % 3
    assert NodeClassification.of(
        make_graph(labels), TaskSettings(label_smoothing=0.1)
    ) == NodeClassification(3, False, "accuracy", 0.1)
    assert NodeClassification.of(
        make_graph(labels % 2), TaskSettings("roc_auc")
    ) == NodeClassification(2, False, "roc_auc")
    assert NodeClassification.of(make_graph(np.ones((NODES, 5), int))) == NodeClassification(
        5, True, "roc_auc"
    )
    assert (
        NodeClassification.of(make_graph(np.ones((NODES, 5), int)), TaskSettings("accuracy")).metric
        == "accuracy"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [({"train": ()}, "no labelled train"), ({"val": ()}, "no labelled val")],
)
def test_a_graph_without_training_or_validation_nodes_is_refused(change, said):
    with pytest.raises(UserError, match=rf"toy has {said} nodes\. Give labels and masks"):
        NodeClassification.of(make_graph(np.arange(NODES) % 3, **change))


def test_roc_auc_of_three_classes_is_refused():
    with pytest.raises(UserError, match="roc_auc needs 2 classes or yes/no labels; found 3"):
        NodeClassification.of(make_graph(np.arange(NODES) % 3), TaskSettings("roc_auc"))

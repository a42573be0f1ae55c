"""Regression: standardised inside, in the unit of the targets outside."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from gtjax.tasks.base import TaskSettings
from gtjax.tasks.regression import NodeRegression
from tests.tasks.asked import Steps, config_of, one_graph, with_targets


@pytest.fixture(scope="module")
def steps():
    return Steps(with_targets(targets=2), config_of("auto"))


def test_targets_are_standardised_by_those_of_training(steps):
    graph = with_targets(targets=2)
    train_nt = graph.labels_n[graph.split_n["train"]]
    np.testing.assert_allclose(steps.task.mean, train_nt.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(steps.task.std, train_nt.std(axis=0), rtol=1e-5)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_metrics_are_those_of_plain_numpy(steps, split):
    graph = with_targets(targets=2)
    ids_n = np.asarray(steps.batch.inputs.node_ids_n)
    mask = graph.split_n[split][ids_n]
    wanted = graph.labels_n[ids_n][mask]
    error = np.asarray(steps.task.answers(steps.outputs.outputs))[mask] - wanted
    found = steps.metrics
    assert found[f"{split}_mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert found[f"{split}_rmse"] == pytest.approx(np.sqrt((error**2).mean(0)).mean(), rel=1e-5)
    r2 = 1 - (error**2).mean(0) / wanted.var(0)
    assert found[f"{split}_r2"] == pytest.approx(r2.mean(), rel=1e-4)


def test_the_unit_of_the_targets_does_not_matter(steps):
    graph = with_targets(targets=2)
    other = dataclasses.replace(graph, labels_n=1000 * graph.labels_n - 7)
    again = Steps(other, config_of("node_regression"))
    np.testing.assert_allclose(again.losses, steps.losses, rtol=1e-3)
    assert again.metrics["val_mae"] == pytest.approx(1000 * steps.metrics["val_mae"], rel=1e-3)


def test_the_smallest_error_is_kept_and_predicted_with(tmp_path):
    graph = with_targets()
    config = dataclasses.replace(config_of("auto"), out=tmp_path / "run", steps=30, eval_every=2)
    result = fit(graph, config=config, show_progress=False)
    assert result["metric"] == "mae"
    rows = [row for row in RunFolder.open(result.folder)[0].metrics() if "val_mae" in row]
    assert result["val_mae"] == pytest.approx(min(row["val_mae"] for row in rows), rel=1e-5)
    assert result["val_mae"] < rows[0]["val_mae"]
    folder, read = RunFolder.open(result.folder)
    known = TrainedRun(folder, read).predict(graph)
    bare = dataclasses.replace(graph, labels_n=np.full(graph.num_nodes, -1), split_n={})
    unknown = TrainedRun(folder, read).predict(bare)
    np.testing.assert_array_equal(known.answers_nc, unknown.answers_nc)
    assert np.isnan(unknown.metrics["val_mae"])


def test_what_is_no_real_number_is_refused():
    yes_no = dataclasses.replace(one_graph(), labels_n=np.ones((151, 2), int))
    with pytest.raises(UserError, match="several yes/no labels"):
        NodeRegression.of(yes_no)
    with pytest.raises(UserError, match="real targets cannot be shown"):
        NodeRegression.of(with_targets(), TaskSettings(label_input=True))
    task = NodeRegression.of(with_targets())
    with pytest.raises(UserError, match=r"trained on 1 targets; .* has 2"):
        task.fitted(with_targets(targets=2))


def own_loss(outputs, labels, counted):
    """The absolute error."""
    return abs(outputs - labels).sum(where=counted) / counted.sum()


def own_metric(outputs, labels, counted):
    """How seldom the answer is off by more than 1."""
    return (abs(outputs - labels) < 1).mean(where=counted)


def test_a_loss_and_a_metric_of_ones_own(tmp_path):
    config = dataclasses.replace(config_of("auto"), out=tmp_path / "run")
    options = {"loss": own_loss, "metric": own_metric, "show_progress": False}
    result = fit(with_targets(), config=config, **options)
    name = f"{__name__}:own_metric"
    assert result["metric"] == name
    assert 0 <= result[f"val_{name}"] <= 1
    folder, read = RunFolder.open(result.folder)
    assert read.asked.loss == f"{__name__}:own_loss"
    assert (
        TrainedRun(folder, read).predict(with_targets()).metrics[f"val_{name}"]
        == result[f"val_{name}"]
    )

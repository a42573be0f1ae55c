"""A task of one's own is one class and one registration, and trains with nothing else touched.

Regression of a number of every node: here that of its class.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from gtjax.cli.outcome import print_metrics
from gtjax.core.errors import UserError
from gtjax.datasets import load
from gtjax.nn import TransformerConfig
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from gtjax.tasks.base import TASKS, register_task
from tests.runs.small_run import DATA, small_config
from tests.toys.task import Regression


@pytest.fixture
def registered():
    register_task("regression", Regression)
    yield
    del TASKS["regression"]


def test_a_task_of_ones_own_trains_and_predicts(registered, tmp_path, capsys):
    graph = load(DATA)
    model = TransformerConfig(hidden=16, layers=1, heads=2, dropout=0.0)
    config = small_config(tmp_path / "run", task="regression", model=model, steps=40)
    result = fit(graph, config=config, show_progress=False)
    assert result["metric"] == "r2"
    assert result["losses"][-1] < 0.7 * result["losses"][0]
    assert result["val_r2"] > 0.2
    print_metrics(result.values)
    assert capsys.readouterr().out.startswith("r2: train ")
    folder, read = RunFolder.open(tmp_path / "run")
    assert read.task == "regression"
    assert json.loads((folder.path / "data.json").read_text())["task"]["name"] == "regression"
    found = TrainedRun(folder, read).predict(graph)
    assert found.answers_nc.shape == (graph.num_nodes, 1)
    assert found.metrics["val_r2"] == pytest.approx(result["val_r2"], abs=1e-6)
    bare = dataclasses.replace(graph, x_nf=np.zeros((graph.num_nodes, 0), np.float32))
    with pytest.raises(UserError, match="regression needs features"):
        fit(bare, config=dataclasses.replace(config, out=tmp_path / "other"), show_progress=False)


def test_a_class_is_as_good_as_its_name(tmp_path):
    config = small_config(tmp_path / "run", steps=2)
    result = fit(load(DATA), config=config, task=Regression, show_progress=False)
    assert result["config"]["task"] == f"{Regression.__module__}:Regression"


def test_a_metric_of_another_task_is_refused_with_those_there_are(registered):
    with pytest.raises(ValueError, match="metric is one of auto, r2; found 'accuracy'"):
        small_config(task="regression", metric="accuracy")
    with pytest.raises(ValueError, match=r"unknown task 'regresion'\. Did you mean 'regression'"):
        small_config(task="regresion")

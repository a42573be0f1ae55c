"""Training and what follows it, from the command line."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gtjax.cli import train
from gtjax.datasets import load, save_npz
from gtjax.nn import TransformerConfig
from gtjax.runs.config import read_config
from tests.cli.small_options import MODEL, SMALL
from tests.runs.small_run import DATA


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, trained on a file."""
    folder = tmp_path_factory.mktemp("cli")
    save_npz(load(DATA), folder / "graph.npz")
    options = ["--data", str(folder / "graph.npz"), "--steps", "3", "--seed", "5"]
    assert train.run([*options, *MODEL, "--out", str(folder / "run")]) == 0
    return folder / "run"


def result(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_options_reach_the_run(run):
    config = read_config(run / "config.json")
    assert (config.steps, config.seed) == (3, 5)
    assert config.model == TransformerConfig(hidden=8, layers=1, heads=2)
    assert config.data.endswith("graph.npz")
    assert len(result(run)["losses"]) == 3


def test_training_prints_the_metrics_and_where_the_report_is(gtjax, run, out):
    outcome = gtjax("train", *SMALL, "--seed", "5", "--out", out)
    assert outcome.code == 0
    number = r"\d\.\d{4}"
    metrics, report = outcome.out.splitlines()
    assert re.fullmatch(f"accuracy: train {number}, val {number}, test {number}", metrics)
    assert report == f"report: {out / 'report.html'}"
    assert "training 3/3 loss" in outcome.err
    # A file holds the same graph as the generator that it came from.
    assert result(out)["losses"] == result(run)["losses"]


@pytest.mark.slow
def test_isolated_parts_are_trained_and_drawn_anew(gtjax, out):
    options = ["--strategy", "isolated", "--devices", 2, "--repartition", 1]
    outcome = gtjax("train", *SMALL, *options, "--out", out)
    assert outcome.code == 0
    assert "training 3/3 loss" in outcome.err
    assert result(out)["approximate"] is True
    assert result(out)["seconds_per_draw"] > 0
    evaluated = json.loads(gtjax("evaluate", out, "--json").out)
    assert evaluated == {name: result(out)[name] for name in evaluated}


def test_options_win_over_the_config_file(gtjax, tmp_path, out):
    path = tmp_path / "run.toml"
    path.write_text(
        f'data = "{DATA}"\nsteps = 99\nseed = 5\n[model]\nhidden = 8\nlayers = 1\nheads = 8\n'
    )
    outcome = gtjax("train", "--config", path, "--steps", 3, "--model.heads", 2, "--out", out)
    assert outcome.code == 0
    config = read_config(out / "config.json")
    assert (config.steps, config.seed, config.data) == (3, 5, DATA)
    assert config.model == TransformerConfig(hidden=8, layers=1, heads=2)


def test_the_config_of_a_run_repeats_it(gtjax, run, out):
    outcome = gtjax("train", "--config", run / "config.json", "--out", out)
    assert outcome.code == 0
    assert result(out)["losses"] == result(run)["losses"]


def test_evaluating_prints_the_metrics_of_the_result(gtjax, run):
    outcome = gtjax("evaluate", run, "--json")
    assert outcome.code == 0
    metrics = json.loads(outcome.out)
    assert metrics == {name: result(run)[name] for name in metrics}
    assert set(metrics) == {"train_accuracy", "val_accuracy", "test_accuracy"}
    assert f"test {metrics['test_accuracy']:.4f}" in gtjax("evaluate", run).out


def test_evaluating_on_other_data(gtjax, run):
    other = "synthetic-citation:nodes=200,classes=4,signal=3"
    metrics = json.loads(gtjax("evaluate", run, "--data", other, "--json").out)
    assert metrics["test_accuracy"] != result(run)["test_accuracy"]
    outcome = gtjax("evaluate", run, "--data", "synthetic-citation:nodes=200,classes=5")
    assert outcome.code == 2
    assert "was trained on 4 classes; synthetic-citation has 5" in outcome.err


def test_evaluating_without_labels_says_so(gtjax, run, tmp_path):
    graph = load(DATA)
    bare = replace(graph, labels_n=np.full(300, -1), split_n={})
    save_npz(bare, tmp_path / "bare.npz")
    metrics = json.loads(gtjax("evaluate", run, "--data", tmp_path / "bare.npz", "--json").out)
    assert metrics == {"train_accuracy": None, "val_accuracy": None, "test_accuracy": None}
    outcome = gtjax("evaluate", run, "--data", tmp_path / "bare.npz")
    assert outcome.out == "no metrics: no labelled train, val or test nodes\n"


def test_predictions_are_written(gtjax, run, tmp_path):
    outcome = gtjax("predict", run, "--out", tmp_path / "p.npz")
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"wrote {tmp_path / 'p.npz'}\n"
    with np.load(tmp_path / "p.npz") as stored:
        assert stored["probabilities"].shape == (300, 4)
        assert stored["embeddings"].shape == (300, 8)


def test_resuming_a_run_without_a_result_makes_one(gtjax, run, out):
    shutil.copytree(run, out)
    (out / "result.json").unlink()
    assert gtjax("resume", out).code == 0
    assert result(out)["losses"] == result(run)["losses"]


def test_resuming_on_data_that_changed_is_refused(gtjax, run, out, tmp_path):
    shutil.copytree(run, out)
    table = json.loads((out / "config.json").read_text())
    table["data"] = "synthetic-citation:nodes=301"
    (out / "config.json").write_text(json.dumps(table))
    (out / "result.json").unlink()  # a finished run is not looked at
    outcome = gtjax("resume", out)
    assert outcome.code == 2
    assert "is not the graph that" in outcome.err

"""A tuning chooses by validation alone, stays within its rules, and goes on after a kill."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gtjax
from gtjax.core.errors import UserError
from gtjax.datasets import save_npz
from gtjax.runs.config import read_config
from gtjax.tuning import study as studies
from gtjax.tuning import tune as tuning
from gtjax.tuning.trial import Trials
from tests.marks import slow


@pytest.fixture(scope="module")
def graph():
    drawn = gtjax.load("synthetic-citation:nodes=211,seed=3")
    return drawn.with_random_splits(train=0.6, val=0.2, test=0.2)


def tuned(graph, out, **settings):
    wanted = {"budget": "1h", "trials": 2, "jobs": 1, "ensemble": 2, "models": "gcn"} | settings
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "LONGEST", 8)
        return gtjax.tune(graph, gtjax.TuneConfig(out=out, **wanted), show_progress=False)


@pytest.fixture(scope="module")
def result(graph, tmp_path_factory):
    return tuned(graph, tmp_path_factory.mktemp("tuned") / "tune")


def trials_of(folder):
    with (folder / "trials.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_choice_is_the_best_on_validation_and_can_be_trained_again(graph, result):
    finals = [row for row in trials_of(result.folder) if row["study"] == "finalists"]
    rows = finals or [row for row in trials_of(result.folder) if row["state"] == "finished"]
    assert result["validation"] == pytest.approx(max(float(row["val"]) for row in rows))
    config = read_config(result.folder / "best.toml")
    assert config.model.hidden == result["settings"]["model.hidden"]
    run = gtjax.load_run(result.folder / "final")
    assert run.config.model == config.model
    metrics = run.evaluate(graph)
    assert metrics["test_smoothed_accuracy"] == pytest.approx(result["test_accuracy"])
    assert metrics["test_accuracy"] == pytest.approx(result["test_unsmoothed_accuracy"])
    assert result["trials"] == 2
    assert {each["name"] for each in result["baselines"]} >= {"label propagation"}
    assert (result.folder / "trials.svg").stat().st_size > 1000


def test_nothing_of_trials_tells_of_test_nodes(result):
    files = ("journal.jsonl", "trials.csv", "final/metrics.jsonl")
    for name in files:
        text = (result.folder / name).read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else []
        seen = [row["test_accuracy"] for row in rows if "test_accuracy" in row]
        assert "test_" not in text or set(seen) == {None}, name


def test_smoothing_is_chosen_where_many_labels_are_known_and_neighbours_alike(graph, tmp_path):
    few = graph.with_random_splits(train=0.1, val=0.2, test=0.7)
    unlike = dataclasses.replace(graph, labels_n=np.arange(graph.num_nodes) % 2)
    methods = {}
    for name, each in {"many": graph, "few": few, "unlike": unlike}.items():
        config = gtjax.TuneConfig(out=tmp_path / name)
        methods[name] = tuning.Tuning(each, None, config, False)._smoothing().method
    assert methods == {"many": "correct_and_smooth", "few": "none", "unlike": "none"}


@pytest.mark.parametrize(
    ("budget", "steps", "best", "wanted"),
    [
        ("1h", 120, (110, 120), (5, 996)),  # its time was over: more steps, and then more seeds
        ("3m", 120, (110, 120), (1, 996)),
        ("1m", 120, (110, 120), (1, 480)),
        ("1h", 600, (340, 350), (5, 600)),  # nothing better for as long as its patience
        ("3m", 600, (340, 350), (2, 600)),
    ],
)
def test_a_trial_cut_by_its_time_is_trained_for_longer(
    graph, tmp_path, monkeypatch, budget, steps, best, wanted
):
    monkeypatch.setattr(tuning.Tuning, "elapsed", 2.0)
    config = gtjax.TuneConfig(out=tmp_path / "tune", budget=budget, jobs=1)
    made = tuning.Tuning(graph, None, config, False)
    seconds = 10 + 2 * 0.1 * steps  # of two seeds, a tenth of a second a step
    outcome = {"steps": steps, "best_steps": best, "seconds": seconds, "compile_seconds": 10.0}
    assert made._final_size(outcome | {"each": (0.5, 0.5)}) == wanted


@pytest.mark.parametrize("trials", [2, slow(6)])
def test_scrambled_test_labels_change_nothing_that_is_chosen(graph, result, tmp_path, trials):
    rng, labels_n = np.random.default_rng(0), np.array(graph.labels_n)
    test_n = graph.split_n["test"]
    labels_n[test_n] = rng.permutation(labels_n[test_n])
    scrambled = dataclasses.replace(graph, labels_n=labels_n)
    first = result if trials == 2 else tuned(graph, tmp_path / "first", trials=trials)
    other = tuned(scrambled, tmp_path / "other", trials=trials)
    assert other["settings"] == first["settings"]
    assert other["validation"] == first["validation"]
    assert other["test_accuracy"] != first["test_accuracy"]
    text = [(each.folder / "best.toml").read_text() for each in (first, other)]
    assert text[0] == text[1]


def test_a_finished_tuning_is_left_as_it_is(graph, result):
    again = tuned(graph, result.folder)
    assert again.values == json.loads((result.folder / "result.json").read_text())


def test_another_graph_is_refused(result):
    other = gtjax.load("synthetic-citation:nodes=211,seed=4")
    with pytest.raises(UserError, match="holds the tuning of another graph"):
        tuned(other, result.folder)


def test_a_trial_that_promises_less_is_stopped(graph):
    told = []
    config = gtjax.TrainConfig(
        model=gtjax.GCNConfig(hidden=8, layers=1), steps=27, eval_every=1, seeds=2
    )

    def report(goodness, units):
        told.append(units)
        return units == 3

    outcome = Trials(graph).run(config, seconds=1e6, report=report)
    assert outcome.stopped
    assert told == [1, 2, 3]
    assert outcome.steps == 3
    assert len(outcome.each) == 2


def test_the_loss_may_choose_the_step_and_accuracy_compare_trials(graph):
    config = gtjax.TrainConfig(
        model=gtjax.GCNConfig(hidden=8, layers=1), steps=12, eval_every=1, metric="cross_entropy"
    )
    by_loss = Trials(graph).run(config, seconds=1e6)
    told = Trials(graph).run(config, seconds=1e6, compared="accuracy")
    assert told.best_steps == by_loss.best_steps
    assert by_loss.goodness == -by_loss.metric  # a loss: the smaller the better
    assert told.goodness == told.metric
    best = gtjax.fit(graph, config=dataclasses.replace(config, steps=told.best_steps[0]))
    assert told.metric == pytest.approx(best["val_accuracy"], abs=1e-6)


@pytest.mark.slow
def test_a_killed_tuning_goes_on(graph, tmp_path):
    """With processes side by side, killed in the middle of a trial: what had ended still counts."""
    save_npz(graph, tmp_path / "graph.npz")
    start = "import sys; from gtjax.cli.main import main; sys.exit(main())"
    options = ["tune", str(tmp_path / "graph.npz"), "--out", str(tmp_path / "tune")]
    options += ["--budget", "100s", "--trials", "3", "--jobs", "2", "--ensemble", "1"]
    command = [sys.executable, "-c", start, *options, "--models", "gcn"]
    run = subprocess.Popen(command, start_new_session=True)
    journal = tmp_path / "tune" / "journal.jsonl"
    until = time.monotonic() + 300
    while time.monotonic() < until:
        if journal.exists() and "outcome" in journal.read_text():
            break
        time.sleep(0.2)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    before = studies.ended(studies.open_study(tmp_path / "tune", studies.SEARCH))
    assert before
    subprocess.run(command, check=True, timeout=600)
    study = studies.open_study(tmp_path / "tune", studies.SEARCH)
    after = {trial.number: studies.outcome_of(trial) for trial in studies.ended(study)}
    assert all(after[trial.number] == studies.outcome_of(trial) for trial in before)
    assert json.loads((tmp_path / "tune" / "result.json").read_text())["trials"] == len(after)
    assert studies.begun(study) <= 3
    given_up = study.get_trials(states=(studies.optuna().trial.TrialState.FAIL,))
    asked = [trial.user_attrs.get(studies.CALLED) for trial in study.get_trials()]
    assert all(asked.count(trial.user_attrs.get(studies.CALLED)) > 1 for trial in given_up)


def test_links_are_refused(graph):
    with pytest.raises(UserError, match="labels of nodes"):
        gtjax.tune(gtjax.TrainConfig(task="link").prepared(graph), show_progress=False)

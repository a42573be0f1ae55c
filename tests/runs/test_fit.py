"""`fit` from end to end: what it leaves behind, that it learns, and that the seed decides."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.datasets import save_npz
from gtjax.graph import Graph
from gtjax.runs.config import OptimConfig, RuntimeConfig, read_config
from gtjax.runs.loop import fit
from tests.runs.small_run import MODEL, OPTIM, STEPS, small_config


def lines(folder):
    text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_result_is_complete_and_stored(finished):
    stored = json.loads((finished.folder / "result.json").read_text(encoding="utf-8"))
    assert stored == finished.values
    assert len(stored["losses"]) == STEPS
    assert np.isfinite(stored["losses"]).all()
    for split in ("train", "val", "test"):
        assert 0 <= stored[f"{split}_accuracy"] <= 1
    assert stored["seconds_per_step"] > 0
    assert stored["peak_bytes_per_device"] > 10_000
    assert stored["strategy"]
    assert set(stored["mesh"]) == {"node", "feature"}
    assert {"python", "gtjax", "jax", "jaxlib", "flax", "numpy"} <= set(stored["versions"])
    assert stored["config"]["model"]["hidden"] == MODEL.hidden
    assert stored["steps"] == STEPS
    assert stored["approximate"] is False
    assert "coverage" not in stored
    assert "approximate:" not in (finished.folder / "report.html").read_text(encoding="utf-8")


def test_the_folder_holds_the_resolved_config(finished, graph):
    expected = replace(small_config(finished.folder), data=graph.name, task="node")
    assert read_config(finished.folder / "config.json") == expected


def test_metrics_have_a_line_per_step_and_evaluations_now_and_then(finished):
    rows = lines(finished.folder)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert [row["loss"] for row in rows] == finished["losses"]
    assert [row["step"] for row in rows if "val_accuracy" in row] == [4, 8, 12]
    best = max(row["val_accuracy"] for row in rows if "val_accuracy" in row)
    assert finished["val_accuracy"] == best
    assert rows[finished["best_step"] - 1]["val_accuracy"] == best


def test_nothing_half_written_is_left(finished):
    names = {path.name for path in finished.folder.iterdir()}
    assert names == {
        "asked.json", "config.json", "data.json", "graph.npz", "metrics.jsonl", "result.json",
        "report.html", "checkpoints", "status.json",
    }  # fmt: skip
    assert [path.name for path in (finished.folder / "checkpoints").iterdir()] == [str(STEPS)]


def test_it_learns(finished):
    # Chance is 0.25. Over 210 test nodes, 0.45 is more than six deviations above it.
    assert finished["test_accuracy"] > 0.45
    assert finished["losses"][-1] < 0.7 * finished["losses"][0]


def test_the_same_seed_gives_the_same_losses_whatever_else_is_said(
    graph, finished, tmp_path, monkeypatch, capfd
):
    """Without a folder and with a function that loads; the model as argument, and silently."""
    monkeypatch.chdir(tmp_path)
    loads = []

    def load():
        loads.append(1)
        return graph

    first = fit(load, config=small_config())
    assert loads == [1]
    assert_lines_of_progress(capfd.readouterr(), first.folder)
    config = small_config(model=replace(MODEL, hidden=64))
    second = fit(graph, MODEL, config, show_progress=False)
    assert tuple(capfd.readouterr()) == ("", "")
    assert first.folder != second.folder
    for again in (first, second):
        assert again.folder.parent.name == "runs"
        assert again["losses"] == finished["losses"]
        assert again["test_accuracy"] == finished["test_accuracy"]


def assert_lines_of_progress(printed, folder):
    assert printed.out == ""
    said = printed.err.splitlines()
    assert f"run folder: {folder}" in said
    assert any(re.match(r"training 12/12 loss \d", line) for line in said)
    assert "\r" not in printed.err
    assert "\x1b" not in printed.err
    assert len(said) < 12


@pytest.fixture(scope="module")
def other(graph, tmp_path_factory):
    """With another seed, by a user who hides nothing."""
    before = os.umask(0)
    try:
        config = small_config(tmp_path_factory.mktemp("other") / "run", seed=1)
        return fit(graph, config=config, show_progress=False)
    finally:
        os.umask(before)


def test_another_seed_gives_other_losses(finished, other):
    assert len(set(other["losses"]) & set(finished["losses"])) == 0


def test_nobody_else_may_look_into_the_folder_of_a_run(other):
    assert other.folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_holds_a_run_is_not_overwritten(graph, finished):
    before = (finished.folder / "result.json").read_bytes()
    with pytest.raises(UserError, match="--out names a new folder"):
        fit(graph, config=small_config(finished.folder), show_progress=False)
    assert (finished.folder / "result.json").read_bytes() == before


def test_it_stops_when_it_runs_out_of_patience(graph, out):
    stuck = OptimConfig(learning_rate=1e-30, weight_decay=0)
    config = small_config(out, patience=3, optim=stuck)
    result = fit(graph, config=config, show_progress=False)
    # Best at the first evaluation, and no better at the second.
    assert (result["best_step"], result["steps"], len(result["losses"])) == (4, 8, 8)


@pytest.mark.slow  # test_program.py says the same of a step
def test_labels_as_input_do_not_let_training_nodes_copy_their_own(out, rng):
    # No neighbours and no features: whoever does better than a constant guess has seen its label.
    labels = rng.integers(0, 4, 300)
    third = np.arange(300) % 3
    masks = {name: third == i for i, name in enumerate(("train", "val", "test"))}
    graph = Graph([], [], np.zeros((300, 1)), labels, masks, name="islands")
    model = replace(MODEL, label_input=True, dropout=0.0)
    config = small_config(out, model=model, steps=40, eval_every=40, optim=OPTIM)
    result = fit(graph, config=config, show_progress=False)
    shares = np.bincount(labels[masks["train"]]) / 100
    assert np.abs(result["train_accuracy"] - shares).min() < 1e-6


def test_an_unknown_kernel_is_a_users_error(graph, out):
    with pytest.raises(UserError, match="--kernel abacus: kernel is one of auto"):
        fit(graph, config=small_config(out, kernel="abacus"), show_progress=False)


def test_a_path_is_loaded(graph, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_npz(graph, "graph.npz")
    config = small_config(out, split="random:60/20/20")
    fit(Path("graph.npz"), config=config, show_progress=False)
    stored = read_config(out / "config.json")
    assert stored.data == str(tmp_path / "graph.npz")  # found from any folder
    assert stored.split == "random:60/20/20"
    facts = json.loads((out / "data.json").read_text(encoding="utf-8"))["facts"]
    assert facts["figures"]["splits"] == {"train": 180, "val": 60, "test": 60}


def test_a_trace_is_written_if_asked_for(graph, out, capfd):
    runtime = RuntimeConfig(profile=True, checkpoint_steps=1)  # so that there are many turns
    fit(graph, config=small_config(out, runtime=runtime))
    assert list((out / "profile" / "process-0").rglob("*.xplane.pb"))
    assert "wrote a trace" in capfd.readouterr().err


def test_a_script_without_progress_is_warned_of_a_slow_kernel(graph, out, monkeypatch):
    missing = {"cpu": "it was not compiled"}
    monkeypatch.setattr("gtjax.runs.loop.missing_kernels", lambda ops: missing)
    with pytest.warns(UserWarning, match="kernel cpu would be faster .*, but it was"):
        fit(graph, config=replace(small_config(out), steps=1), show_progress=False)

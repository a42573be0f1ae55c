"""A run that was stopped goes on as if it had not been."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from gtjax.core.errors import UserError
from gtjax.runs import loop
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import RuntimeConfig
from gtjax.runs.interrupt import StopRequest
from gtjax.runs.loop import Interrupted, fit, resume
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from tests.marks import slow
from tests.runs.small_run import STEPS, small_config


def newest(folder, config, graph):
    state = Program(config, graph, config.task_of(graph)).initial_state()
    with Checkpoints(folder) as checkpoints:
        return checkpoints.restore(Snapshot(state, Best.none_yet(state.params)))


def stop_after(monkeypatch, looks):
    """Ask the run to stop once it has looked that often whether it should."""

    class StopSoon(StopRequest):
        looked = 0

        @property
        def asked(self):
            self.looked += 1
            return self.looked > looks

        @asked.setter
        def asked(self, value):
            pass

    monkeypatch.setattr(loop, "StopRequest", StopSoon)


def start_and_stop(monkeypatch, graph, config, looks):
    with monkeypatch.context() as patch:
        stop_after(patch, looks)
        with pytest.raises(Interrupted, match="continue with: gtjax resume") as caught:
            fit(graph, config=config, show_progress=False)
    return str(caught.value)


@pytest.mark.parametrize("looks", [0, *map(slow, (1, 2, 3, 4))])
def test_a_stopped_run_ends_like_one_that_was_not(graph, finished, out, monkeypatch, looks):
    config = small_config(out)
    said = start_and_stop(monkeypatch, graph, config, looks)
    assert not (out / "result.json").exists()
    stopped_at = int(newest(out, config, graph).state.step)
    assert f"stopped at step {stopped_at};" in said
    assert (stopped_at == 0) == (looks <= 2)  # before placing, compiling and the first step
    assert stopped_at < STEPS

    assert_ends_like(finished, out, config, graph)


def assert_ends_like(finished, out, config, graph):
    resumed = resume(*RunFolder.open(out), graph, show_progress=False)
    assert resumed["losses"] == finished["losses"]
    same = ("train_accuracy", "val_accuracy", "test_accuracy", "best_step", "steps")
    assert [resumed[name] for name in same] == [finished[name] for name in same]
    jax.tree.map(
        np.testing.assert_array_equal,
        newest(out, config, graph),
        newest(finished.folder, config, graph),
    )


@pytest.mark.slow
def test_a_run_can_be_stopped_again_and_again(graph, finished, out, monkeypatch):
    """After its first steps, then killed while it wrote a line, then before its next steps."""
    config = small_config(out)
    said = start_and_stop(monkeypatch, graph, config, 3)
    assert "stopped at step 0" not in said
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "loss": 0.5}\n{"step": 100, "lo')
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Interrupted):
            resume(*RunFolder.open(out), graph, show_progress=False)
    assert_ends_like(finished, out, config, graph)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))


def test_a_run_killed_before_its_first_checkpoint_begins_again(graph, finished, out, monkeypatch):
    start_and_stop(monkeypatch, graph, small_config(out), 4)
    shutil.rmtree(out / "checkpoints")
    (out / "data.json").unlink()
    assert resume(*RunFolder.open(out), graph, show_progress=False)["losses"] == finished["losses"]


def test_a_finished_run_resumes_to_the_same_result(graph, finished, out):
    shutil.copytree(finished.folder, out)
    resumed = resume(*RunFolder.open(out), graph, show_progress=False)
    assert resumed["losses"] == finished["losses"]
    assert resumed["test_accuracy"] == finished["test_accuracy"]


def test_other_data_is_refused(graph, finished):
    other = dataclasses.replace(graph, x_nf=graph.x_nf + 1)
    with pytest.raises(UserError, match=r"is not the graph that .* was trained on"):
        resume(*RunFolder.open(finished.folder), other, show_progress=False)


def test_a_changed_model_is_refused(graph, finished, out):
    shutil.copytree(finished.folder, out)
    table = json.loads((out / "config.json").read_text())
    table["model"]["hidden"] *= 2
    (out / "config.json").write_text(json.dumps(table))
    with pytest.raises(UserError, match=r"config\.json is not the one"):
        resume(*RunFolder.open(out), graph, show_progress=False)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"not the folder of a run \(it has no config.json\)"):
        RunFolder.open(tmp_path)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(graph, finished, out, capfd):
    runtime = RuntimeConfig(checkpoint_steps=4)
    config = small_config(out, runtime=runtime)
    fit(graph, config=config, show_progress=False)
    kept = sorted((out / "checkpoints").iterdir(), key=lambda path: int(path.name))
    assert [path.name for path in kept] == ["8", "12"]
    (largest,) = sorted(
        (path for path in kept[-1].rglob("*") if path.is_file()),
        key=lambda path: path.stat().st_size,
    )[-1:]
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 4
    largest.write_bytes(content)
    capfd.readouterr()
    resumed = resume(*RunFolder.open(out), graph)
    said = capfd.readouterr().err
    assert f"skipping a checkpoint: {kept[-1]} is damaged" in said
    assert "at step 8" in said
    assert resumed["losses"] == finished["losses"]

    for path in (out / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        UserError, match=r"no checkpoint of .* is good: .*12 is damaged.*8 is damaged"
    ):
        resume(*RunFolder.open(out), graph, show_progress=False)

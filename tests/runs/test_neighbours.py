"""Runs on sampled neighbourhoods: resumed as if never stopped, reported in plain words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig
from gtjax.runs.loop import fit, resume
from gtjax.runs.run_folder import RunFolder
from tests.runs.small_run import STEPS, small_config
from tests.runs.test_resume import start_and_stop

BATCHES = BatchesConfig(batching="neighbours", batch_size=8, fan_out="3")


@pytest.mark.slow
def test_a_resumed_run_draws_what_one_that_was_not_stopped_does(graph, out, tmp_path, monkeypatch):
    whole = fit(graph, config=small_config(tmp_path / "whole", batches=BATCHES))
    start_and_stop(monkeypatch, graph, small_config(out, batches=BATCHES), 7)
    resumed = resume(*RunFolder.open(out), graph, show_progress=False)
    assert len(whole["losses"]) == STEPS
    np.testing.assert_array_equal(resumed["losses"], whole["losses"])
    assert resumed["test_accuracy"] == whole["test_accuracy"]


def test_waiting_epochs_and_growth_are_told(graph, out):
    result = fit(graph, config=small_config(out, batches=BATCHES), show_progress=False)
    assert result["approximate"]
    assert 0 <= result["waiting"] < 1
    assert result["shapes_grown"] == 0
    train = int(graph.split_n["train"].sum())
    assert result["epochs"] == (STEPS - 1) / -(-train // 8)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["waiting"] <= 1 for row in rows[1:])  # the first is there to compile
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "devices waited for batches" in page

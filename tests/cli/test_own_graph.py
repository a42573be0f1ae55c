"""A graph that was given in Python is found again by the command line, or asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gtjax.batching.config import PrepareConfig
from gtjax.datasets import load
from gtjax.runs import run_graph
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from tests.cli.small_options import SMALL
from tests.runs.small_run import DATA, small_config


@pytest.fixture
def graph():
    """Not what its name would load: the features are others."""
    known = load(DATA)
    rng = np.random.default_rng(0)
    return type(known)(
        known.senders_e,
        known.receivers_e,
        known.x_nf + rng.standard_normal(known.x_nf.shape).astype(np.float32),
        known.labels_n,
        known.split_n,
    )


@pytest.mark.parametrize(("keep", "stored"), [("always", True), ("never", False)])
@pytest.mark.slow
def test_it_is_kept_as_asked(gtjax, keep, stored, out):
    assert gtjax("train", *SMALL, "--keep-graph", keep, "--out", out).code == 0
    assert (out / run_graph.STORED).exists() == stored


def test_it_is_kept_with_the_run(gtjax, graph, out):
    result = fit(graph, config=small_config(out), show_progress=False)
    assert json.loads((out / "config.json").read_text())["data"] != small_config(out).data
    outcome = gtjax("evaluate", out, "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    for name, value in found.items():
        assert value == pytest.approx(result[name])
    (out / "result.json").unlink()  # a finished run needs no graph
    assert gtjax("resume", out).code == 0
    assert json.loads((out / "result.json").read_text())["losses"] == result["losses"]


def test_a_large_one_is_asked_for_and_another_is_refused(gtjax, graph, out, tmp_path, monkeypatch):
    monkeypatch.setattr(run_graph, "SMALL_BYTES", 10)
    fit(graph, config=small_config(out))
    assert not (out / run_graph.STORED).exists()
    table = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(table | {"data": DATA}))
    (out / "result.json").unlink()
    predictions = ("--out", tmp_path / "predictions.npz")
    for words in (("evaluate", out), ("predict", out, *predictions), ("resume", out)):
        outcome = gtjax(*words)
        assert outcome.code == 2
        assert "is not the graph that" in outcome.err
    assert gtjax("evaluate", out, "--data", DATA).code == 0  # on purpose


def test_predictions_are_scaled_as_training_was(graph, out):
    """An outlier among new nodes changes nothing for the others."""
    config = small_config(out, prepare=PrepareConfig(features="standard"))
    fit(graph, config=config, show_progress=False)
    far = np.full((1, graph.num_features), 1e4, np.float32)
    more = type(graph)(
        graph.senders_e,
        graph.receivers_e,
        np.concatenate([graph.x_nf, far]),
        np.append(graph.labels_n, -1),
        {name: np.append(mask_n, False) for name, mask_n in graph.split_n.items()},
    )
    want, got = (TrainedRun(*RunFolder.open(out)).predict(each) for each in (graph, more))
    np.testing.assert_allclose(got.answers_nc[:-1], want.answers_nc, atol=1e-5)

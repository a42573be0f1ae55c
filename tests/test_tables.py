"""One file, one line: a toy entry in each of the five tables trains; nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

import gtjax
from gtjax.batching.table import BATCHINGS
from gtjax.strategies import STRATEGIES, WIRES
from gtjax.tasks import base as tasks
from pallas_kernels import OPS
from tests.toys.batching import EvenAndOdd
from tests.toys.op import MEAN_SQUARE, SquareModel
from tests.toys.strategy import NodeBroadcast
from tests.toys.task import Regression
from tests.toys.wire import Half


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=200,seed=1")


def trained(graph, tmp_path, model="sage", batches=None, task="node", **parallel):
    parallel = {"strategy": "node_halo", "devices": 4, "partitioner": "contiguous"} | parallel
    config = gtjax.TrainConfig(
        steps=6,
        task=task,
        out=tmp_path / "run",
        parallel=gtjax.ParallelConfig(**parallel),
        batches=gtjax.BatchesConfig(**batches or {}),
    )
    result = gtjax.fit(graph, model, config, show_progress=False)
    assert np.isfinite(result["losses"]).all()
    assert len(result["losses"]) == 6
    return result


def test_an_op(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(OPS, MEAN_SQUARE.name, MEAN_SQUARE)
    assert not trained(graph, tmp_path, SquareModel)["approximate"]


def test_a_strategy(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(STRATEGIES, "node_broadcast", NodeBroadcast())
    other = trained(graph, tmp_path / "a", strategy="node_broadcast")["losses"]
    want = trained(graph, tmp_path / "b")["losses"]
    np.testing.assert_allclose(other, want, rtol=2e-5)


def test_a_wire(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(WIRES, "half", Half())
    result = trained(graph, tmp_path / "a", wire="half")
    assert result["approximate"]
    plain = trained(graph, tmp_path / "b")["losses"]
    assert result["losses"] != plain
    np.testing.assert_allclose(result["losses"], plain, rtol=1e-2)


def test_a_batching(graph, tmp_path, monkeypatch):
    monkeypatch.setitem(BATCHINGS, "even_and_odd", EvenAndOdd())
    result = trained(graph, tmp_path, batches={"batching": "even_and_odd"})
    assert result["approximate"]
    assert result["batching"] == "even_and_odd"


def test_a_task(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    tasks.register_task("regression", Regression)
    result = trained(graph, tmp_path, task="regression")
    assert result["losses"][-1] < result["losses"][0]

"""Runs on a graph that stays in its folder: sampled, in chunks, and used afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import gtjax
from gtjax.batching.config import BatchesConfig
from gtjax.core.errors import UserError
from gtjax.datasets.conversion import convert
from gtjax.graph import StoredGraph

MODEL = gtjax.SAGEConfig(hidden=8, layers=1, dropout=0.2)


def config(out, **options):
    return gtjax.TrainConfig(steps=3, eval_every=3, out=out, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "graph"
    convert("synthetic-citation:nodes=211,features=9", path)
    return path


@pytest.fixture
def never_in_memory(monkeypatch):
    """No run here may read all of the graph."""

    def refuse(self):
        raise AssertionError("the graph was read into memory")

    monkeypatch.setattr(StoredGraph, "in_memory", refuse)


@pytest.fixture(scope="module")
def in_memory(folder, tmp_path_factory):
    """The same run with the whole graph in memory."""
    out = tmp_path_factory.mktemp("usual") / "run"
    return gtjax.fit(folder, MODEL, config(out), show_progress=False)


def test_chunks_give_the_numbers_of_a_run_in_memory(folder, in_memory, tmp_path, never_in_memory):
    chunks = BatchesConfig(batching="chunks")
    found = gtjax.fit(folder, MODEL, config(tmp_path / "a", batches=chunks), show_progress=False)
    assert found["test_accuracy"] == in_memory["test_accuracy"]
    weights = gtjax.load_run(in_memory.folder).weights
    for name, other in gtjax.load_run(found.folder).weights.items():
        np.testing.assert_allclose(other, weights[name], rtol=2e-5, atol=2e-5)


def test_a_sampled_run_is_evaluated_in_chunks_and_used_again(folder, tmp_path, never_in_memory):
    sampled = BatchesConfig(batching="neighbours", fan_out="all", batch_size=40)
    found = gtjax.fit(folder, MODEL, config(tmp_path / "b", batches=sampled), show_progress=False)
    assert found["approximate"] is True
    run = gtjax.load_run(found.folder)
    assert run.evaluate()["test_accuracy"] == pytest.approx(found["test_accuracy"])
    assert run.predict(nodes=[0, 5]).answers_nc.shape == (2, 8)


def test_what_needs_all_edges_in_memory_is_refused(folder, tmp_path, never_in_memory):
    batches = BatchesConfig(batching="chunks")

    def run(**options):
        model = options.pop("model", MODEL)
        task = options.pop("task", None)
        made = config(tmp_path / "c", batches=batches, **options)
        gtjax.fit(folder, model, made, task=task, show_progress=False)

    with pytest.raises(UserError, match=r"read from its folder: use --model\.positional none"):
        run(model=gtjax.SAGEConfig(hidden=8, layers=1, positional="random_walk"))
    with pytest.raises(UserError, match="--no-self-loops"):
        run(prepare=gtjax.PrepareConfig(self_loops=False))
    with pytest.raises(UserError, match="stored graph"):
        run(task="link")


def test_figures_of_a_stored_graph_are_those_of_its_nodes(folder):
    stored = gtjax.load(folder)
    some, all_ = gtjax.statistics(stored), gtjax.statistics(stored.in_memory())
    assert some.items() <= all_.items()
    assert {"degree", "class_counts", "splits"} <= some.keys()

"""A run in chunks is a run like any other: the same numbers, resumed, used, measured."""

from __future__ import annotations

import numpy as np
import pytest

import gtjax
from gtjax.batching.config import BatchesConfig
from gtjax.core.errors import UserError
from tests.chunks.small_graphs import awkward

MODEL = gtjax.GCNConfig(hidden=8, layers=1, dropout=0.2)


def config(out, **options):
    return gtjax.TrainConfig(steps=3, eval_every=2, out=out, **options)


def test_a_run_in_chunks_gives_the_numbers_of_one_in_memory(tmp_path):
    graph = awkward()
    usual = gtjax.fit(graph, MODEL, config(tmp_path / "usual"), show_progress=False)
    chunks = BatchesConfig(batching="chunks", scratch=str(tmp_path / "scratch"))
    parallel = gtjax.ParallelConfig(memory=0.25)
    found = gtjax.fit(
        graph,
        MODEL,
        config(tmp_path / "chunks", batches=chunks, parallel=parallel),
        show_progress=False,
    )
    assert found["test_accuracy"] == usual["test_accuracy"]
    one, other = gtjax.load_run(usual.folder), gtjax.load_run(found.folder)
    for name, weights in one.weights.items():
        np.testing.assert_allclose(other.weights[name], weights, rtol=2e-5, atol=2e-5)
    # What was trained in memory, used in chunks.
    wanted = one.predict()
    again = gtjax.load_run(usual.folder, memory=0.25).predict()
    np.testing.assert_allclose(again.answers_nc, wanted.answers_nc, atol=1e-5)
    np.testing.assert_allclose(again.embeddings_nf, wanted.embeddings_nf, atol=1e-5)


def test_links_are_refused(tmp_path):
    chunks = BatchesConfig(batching="chunks")
    with pytest.raises(UserError, match="each node"):
        gtjax.fit(
            awkward(),
            MODEL,
            config(tmp_path / "links", batches=chunks),
            task="link",
            show_progress=False,
        )

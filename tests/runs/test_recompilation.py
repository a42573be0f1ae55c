"""Nothing is compiled twice in a run, whatever a step sees."""

from __future__ import annotations

import chex
import pytest

from gtjax.batching.config import BatchesConfig
from gtjax.runs.loop import fit
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from tests.runs.small_run import small_config


@pytest.mark.parametrize(
    "batches",
    [
        BatchesConfig(),
        BatchesConfig(batching="clusters", repartition=2),
        BatchesConfig(batching="neighbours", batch_size=8, fan_out="3"),
    ],
    ids=lambda batches: batches.batching,
)
@pytest.mark.quick_every(6)
def test_steps_and_evaluations_are_traced_once(graph, out, monkeypatch, batches):
    chex.clear_trace_counter()
    for name in ("advance", "evaluate", "predict"):
        monkeypatch.setattr(Program, name, chex.assert_max_traces(getattr(Program, name), n=1))
    parallel = ParallelConfig(devices=4, strategy="node_halo")
    config = small_config(out, parallel=parallel, batches=batches, steps=9, eval_every=2)
    assert len(fit(graph, config=config, show_progress=False)["losses"]) == 9

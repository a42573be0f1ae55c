"""A run that blows up says where, keeps no NaN, and does not lose what came before."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import OptimConfig
from gtjax.runs.loop import fit
from gtjax.runs.program import Program
from gtjax.runs.turns import NotFiniteError
from gtjax.tasks.node import NodeClassification
from tests.runs.small_run import small_config

# Grows so fast that the values overflow after a few steps.
EXPLODING = OptimConfig(learning_rate=1e12, clip=0, warmup=0, schedule="constant")


@pytest.fixture(scope="module")
def exploded(graph, tmp_path_factory):
    out = tmp_path_factory.mktemp("nan") / "run"
    model = replace(small_config().model, norm="none")
    config = small_config(out, optim=EXPLODING, model=model)
    with pytest.raises(NotFiniteError) as caught:
        fit(graph, config=config, show_progress=False)
    state = Program(config, graph, config.task_of(graph)).initial_state()
    with Checkpoints(out) as checkpoints:
        kept = checkpoints.restore(Snapshot(state, Best.none_yet(state.params)))
    return out, str(caught.value), kept


def test_it_names_the_step_and_what_was_not_finite(exploded):
    _, said, kept = exploded
    assert said.startswith(f"step {int(kept.state.step) + 1}: ")
    assert "is not finite" in said
    assert any(word in said for word in ("activation ", "gradient of parameter ", "the loss"))
    assert "--optim.learning-rate" in said


def test_no_checkpoint_holds_a_value_that_is_not_finite(exploded):
    out, _, kept = exploded
    assert len(list((out / "checkpoints").iterdir())) == 1
    assert bool(kept.state.healthy)
    for leaf in jax.tree.leaves((kept.state, kept.best.params)):
        assert np.isfinite(leaf).all()


def test_the_steps_before_it_are_in_the_metrics(exploded):
    out, _, kept = exploded
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, int(kept.state.step) + 1))
    assert not (out / "result.json").exists()


def test_features_that_overflow_are_told_at_the_first_step(graph, out):
    huge = dataclasses.replace(graph, x_nf=np.full(graph.x_nf.shape, 3e38, np.float32))
    config = small_config(out)
    config = replace(config, prepare=replace(config.prepare, features="none"))
    with pytest.raises(NotFiniteError, match="step 1: activation input is not finite"):
        fit(huge, config=config, show_progress=False)


def test_a_gradient_that_is_not_finite_is_named_by_its_parameter(graph, out, monkeypatch):
    def loss(self, outputs, targets, weight_n):
        return jnp.sqrt(0.0 * outputs.sum())  # 0, with an infinite slope

    monkeypatch.setattr(NodeClassification, "loss", loss)
    with pytest.raises(NotFiniteError, match=r"step 1: gradient of parameter \w+"):
        fit(graph, config=small_config(out), show_progress=False)

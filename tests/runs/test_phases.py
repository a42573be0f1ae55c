"""A run in phases: from the best of the one before, bit by bit, and honest about what it keeps."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

import gtjax
from gtjax.batching.prepare import make_batch
from gtjax.nn import PolynormerConfig
from gtjax.runs.checkpoint import Best, Checkpoints, Snapshot
from gtjax.runs.config import OptimConfig, RuntimeConfig, TrainConfig
from gtjax.runs.loop import fit, resume
from gtjax.runs.phases import entered, phase_after, phase_until, steps_left_in_phase
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from tests.marks import slow

STEPS, LOCAL = 10, 5
MODEL = PolynormerConfig(8, layers=1, global_layers=1, heads=2, local_steps=LOCAL)
CONFIG = TrainConfig(
    steps=STEPS,
    eval_every=2,
    model=MODEL,
    optim=OptimConfig(learning_rate=1e-3, weight_decay=0.1, average=0.9),
    runtime=RuntimeConfig(checkpoint_steps=1, checkpoint_keep=STEPS),
)


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=120,classes=3,signal=3")


@pytest.fixture(scope="module")
def folder(graph, tmp_path_factory):
    out = tmp_path_factory.mktemp("phases") / "run"
    return fit(graph, config=replace(CONFIG, out=out), show_progress=False).folder


@pytest.fixture(scope="module")
def program(graph):
    return Program(CONFIG, graph, CONFIG.task_of(graph))


def snapshot_of(folder, program, step):
    with Checkpoints(folder) as checkpoints:
        return checkpoints.read(step, Snapshot.shapes(program))


def everywhere(params):
    """Parameters of the global layers."""
    encoder = params["encoder"]
    return {name: encoder[name] for name in ("everywhere", "norm", "out")}


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


def differ(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(not np.array_equal(a, b) for a, b in pairs)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_is_its_phases_one_after_the_other(graph, folder, program):
    batch = make_batch(graph, program.settings, program.spread)
    state = program.initial_state()
    best, losses = Best.none_yet(state.params), []
    phases = [program.in_phase(0), program]
    advance = [jax.jit(each.advance, static_argnums=3) for each in phases]
    evaluate = [jax.jit(each.evaluate) for each in phases]
    for step in range(1, STEPS + 1):
        now = 0 if step <= LOCAL else 1
        state, loss = advance[now](state, batch, np.int32(1), 1)
        losses.append(float(loss[0]))
        if step % 2 == 0 or step == LOCAL:
            value = evaluate[now](state.average, batch)["val_accuracy"]
            if value > best.metric:
                best = Best(state.average, value, np.int32(step))
        if step == LOCAL:
            assert 0 < int(best.step) <= LOCAL
            state = state._replace(params=best.params, average=best.params)
            fresh = program.initial_state().optimiser
            # Adam from the start, the step size from where it was.
            (_, old), (clip, new) = state.optimiser, fresh
            adam, *rest = new
            state = state._replace(optimiser=(clip, (adam, *old[1:])))
            best = Best.none_yet(best.params)
            assert rest
    got = snapshot_of(folder, program, STEPS)
    np.testing.assert_allclose([row["loss"] for row in rows_of(folder)], losses, rtol=1e-5)
    assert int(got.best.step) == int(best.step) > LOCAL
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(close, got.state.params, state.params)


@pytest.mark.slow
def test_what_a_phase_does_not_use_stays_as_it_was_drawn(folder, program):
    drawn, early = program.initial_state().params, snapshot_of(folder, program, LOCAL).state.params
    assert_same(everywhere(early), everywhere(drawn))  # although weights decay
    assert differ(early["encoder"]["local"], drawn["encoder"]["local"])
    late = snapshot_of(folder, program, STEPS).state.params
    assert differ(everywhere(late), everywhere(drawn))


@pytest.mark.parametrize("step", [LOCAL, *map(slow, (2, LOCAL - 1, LOCAL + 1))])
def test_a_run_that_was_killed_goes_on_bit_by_bit(graph, folder, program, tmp_path, step):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for later in range(step + 1, STEPS + 1):
        shutil.rmtree(copy / "checkpoints" / str(later))
    resume(*RunFolder.open(copy), graph, show_progress=False)
    assert_same(snapshot_of(copy, program, STEPS), snapshot_of(folder, program, STEPS))
    assert gtjax.load_run(copy).evaluate() == gtjax.load_run(folder).evaluate()


@pytest.mark.slow
def test_several_seeds_go_through_phases_together(graph, folder, tmp_path):
    config = replace(CONFIG, out=tmp_path / "seeds", seeds=2)
    result = fit(graph, config=config, show_progress=False)
    of_first = [row["seeds"]["loss"][0] for row in rows_of(result.folder)]
    np.testing.assert_allclose(of_first, [row["loss"] for row in rows_of(folder)], rtol=1e-4)
    best = [one["best_step"] for one in result["seeds"]]
    assert min(best) > LOCAL
    assert gtjax.load_run(result.folder).predict().answers_nc.shape == (graph.num_nodes, 3)


def test_a_phase_may_be_entered_again(folder, program):
    once = entered(snapshot_of(folder, program, LOCAL))
    assert_same(entered(once), once)


def test_the_best_before_the_last_phase_is_the_local_models(folder, program, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for later in range(LOCAL + 1, STEPS + 1):
        shutil.rmtree(copy / "checkpoints" / str(later))
    kept = snapshot_of(copy, program, LOCAL).best
    known = next(row for row in rows_of(folder) if row["step"] == int(kept.step))
    assert gtjax.load_run(copy).evaluate()["val_accuracy"] == pytest.approx(known["val_accuracy"])


def test_steps_belong_to_phases():
    assert [phase_after(MODEL, step) for step in (0, LOCAL - 1, LOCAL)] == [0, 0, 1]
    assert [phase_until(MODEL, step) for step in (0, LOCAL, LOCAL + 1)] == [0, 0, 1]
    assert [steps_left_in_phase(MODEL, step) for step in (0, LOCAL - 1, LOCAL)] == [LOCAL, 1, None]
    assert phase_after(PolynormerConfig(local_steps=3, global_layers=0), 9) == 0
    assert phase_after(gtjax.GCNConfig(), 9) == 0
    with pytest.raises(ValueError, match="local_steps is not negative"):
        PolynormerConfig(local_steps=-1)

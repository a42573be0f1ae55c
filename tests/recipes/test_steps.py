"""Recipes within a run: together, grouped, resumed, on many devices; and where they are refused."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig
from gtjax.batching.prepare import make_batch
from gtjax.core.errors import UserError
from gtjax.nn import GCNConfig, GRANDConfig
from gtjax.recipes.config import RecipeConfig
from gtjax.runs.config import OptimConfig, TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.config import ParallelConfig
from tests.marks import slow
from tests.runs.test_resume import assert_ends_like, start_and_stop

ALL = RecipeConfig(
    consistency=0.7,
    consistency_passes=2,
    sharpening=0.4,
    flag_steps=2,
    flag_size=0.01,
    flag_unlabelled=2.0,
)
MODEL = GRANDConfig(hidden=4, layers=2, input_dropout=0.2, dropout=0.2)
OPTIM = OptimConfig(schedule="plateau", plateau_steps=10, decay="coupled", weight_decay=1e-3)


def program_of(graph, parallel=None, recipe=ALL, model=MODEL):
    config = TrainConfig(
        model=model, recipe=recipe, optim=OPTIM, parallel=parallel or ParallelConfig(), steps=30
    )
    program = Program(config, graph, config.task_of(graph))
    return program, make_batch(graph, program.settings, program.spread)


def run(graph, groups, parallel=None):
    """Losses of steps that are dispatched in these groups, and the state after them."""
    program, batch = program_of(graph, parallel)
    state, found = program.initial_state(), []
    step = program.compiled(state, batch, max(groups))
    for count in groups:
        state, losses = step(state, batch, np.int32(count))
        found.append(np.asarray(losses)[:count])
    return np.concatenate(found), jax.tree.map(np.asarray, state)


@pytest.fixture(scope="module")
def on_one(graph):
    return run(graph, (12, 12))


def test_the_grouping_of_steps_changes_no_bit(graph, on_one):
    losses, state = run(graph, (12, 1, 3, 8))
    np.testing.assert_array_equal(losses, on_one[0])
    jax.tree.map(np.testing.assert_array_equal, state, on_one[1])
    assert len(set(losses.tolist())) == len(losses)


@pytest.mark.parametrize(
    ("strategy", "mesh"),
    [
        ("node_halo", "node=3"),
        slow("node_ring", "node=4"),
        slow("node_all_gather", "node=4"),
        slow("feature_all_to_all", "feature=4"),
        slow("node_by_feature", "node=2,feature=2"),
    ],
)
def test_all_at_once_are_the_same_on_many_devices(graph, on_one, strategy, mesh):
    parallel = ParallelConfig(strategy=strategy, mesh=mesh, partitioner="random")
    np.testing.assert_allclose(run(graph, (12, 12), parallel)[0], on_one[0], rtol=2e-5)


def test_the_loss_of_a_step_is_that_of_its_passes(graph):
    """Without anything random all passes are alike, and the mean is each of them."""
    still = GCNConfig(hidden=4, layers=1, dropout=0.0)
    recipe = RecipeConfig(consistency=0.7, consistency_passes=3, sharpening=0.4)
    program, batch = program_of(graph, recipe=recipe, model=still)
    plain, _ = program_of(graph, recipe=RecipeConfig(), model=still)
    params = program.initial_state().params
    logits = np.asarray(jax.jit(plain.predict)(params, batch)[0].outputs, np.float64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    target = p**2 / (p**2).sum(axis=1, keepdims=True)
    entropy = -(p * np.log(p)).sum(axis=1)
    labels, train = (np.asarray(batch.targets[name]) for name in ("labels", "train"))
    labelled = train & (labels >= 0)
    valid = np.ones(len(p), bool)  # on one device there is no padding
    wanted = -np.log(p[labelled, labels[labelled]]).mean()
    wanted += 0.7 * np.square(p - target).sum(axis=1)[valid].mean()
    wanted += 0.4 * (entropy[valid & ~labelled].mean() - entropy[labelled].mean())
    got = jax.jit(program.loss)(params, batch, jnp.int32(0))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_passes_of_a_step_draw_each_for_itself(graph):
    program, batch = program_of(graph, recipe=RecipeConfig(consistency=1.0, consistency_passes=3))

    @jax.jit
    def watched(params):
        seen = {}
        program.loss(params, batch, jnp.int32(0), watch=seen.__setitem__)
        return seen

    seen = watched(program.initial_state().params)
    hidden = [seen[name] for name in ("hidden", "hidden (pass 2)", "hidden (pass 3)")]
    assert not np.array_equal(hidden[0], hidden[1])
    assert not np.array_equal(hidden[1], hidden[2])
    assert not np.array_equal(hidden[0], hidden[2])


@pytest.mark.slow
def test_a_stopped_run_ends_like_one_that_was_not(graph, tmp_path, monkeypatch):
    from gtjax.runs.loop import fit

    def config(name):
        return TrainConfig(
            model=MODEL, recipe=ALL, optim=OPTIM, steps=12, eval_every=4, out=tmp_path / name
        )

    finished = fit(graph, config=config("whole"), show_progress=False)
    said = start_and_stop(monkeypatch, graph, config("stopped"), 3)
    assert "stopped at step 0" not in said
    assert_ends_like(finished, tmp_path / "stopped", config("stopped"), graph)


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ({"sharpening": 1.0}, {"task": "link"}, "--recipe.sharpening .*it is for --task node"),
        ({"consistency": 1.0}, {"task": "link"}, "--recipe.consistency .*it is for --task node"),
        (
            {"flag_steps": 3, "flag_unlabelled": 2.0},
            {"task": "link"},
            "--recipe.flag-unlabelled .* asks of each pair. Use 1",
        ),
        (
            {"sharpening": 1.0},
            {"batches": BatchesConfig(batching="neighbours")},
            "needs nodes without labels in every step.*Use --batching full or clusters",
        ),
        (
            {"flag_steps": 3},
            {"batches": BatchesConfig(batching="chunks")},
            "--batching chunks has a part of it at a time",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(graph, recipe, changes, said):
    config = TrainConfig(recipe=RecipeConfig(**recipe), model=GCNConfig(), **changes)
    seen = config.prepared(graph)
    with pytest.raises(UserError, match=said):
        Program(config, seen, config.task_of(seen))


def test_yes_no_questions_are_refused(graph):
    several = dataclasses.replace(graph, labels_n=np.zeros((graph.num_nodes, 2), np.int32))
    config = TrainConfig(recipe=RecipeConfig(sharpening=1.0), model=GCNConfig())
    with pytest.raises(UserError, match="one class a node"):
        Program(config, several, config.task_of(several))

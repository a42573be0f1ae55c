"""Several seeds in one program: each takes the steps that it takes alone, and all tell together."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import gtjax
from gtjax.batching.prepare import make_batch
from gtjax.core.errors import UserError
from gtjax.nn import models
from gtjax.recipes.config import RecipeConfig
from gtjax.runs import several_seeds
from gtjax.runs.interrupt import StopRequest
from gtjax.runs.loop import Interrupted, resume
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from gtjax.sharding.config import ParallelConfig

STEPS, SEEDS = 10, 3
LONGER = {"steps": 40, "patience": 5}


@pytest.fixture(scope="module")
def graph():
    return gtjax.load("synthetic-citation:nodes=211,seed=3")


def config_of(model, **settings):
    kind = models.model_entry(model).config
    known = {each.name for each in dataclasses.fields(kind)}
    wanted = {"hidden": 8, "heads": 2, "layers": 2, "dropout": 0.2, "attention_dropout": 0.3}
    own = kind(**{name: value for name, value in wanted.items() if name in known})
    settings = {"steps": STEPS, "eval_every": 5, "seed": 5, "seeds": SEEDS} | settings
    one = ParallelConfig(devices=1)
    return gtjax.TrainConfig(model=own, **({"parallel": one} | settings))


OTHERS = (
    "gcn",
    "sage",
    "gin",
    "gatv2",
    "transformer",
    "decoupled",
    "sgformer",
    "polynormer",
    "grand",
)


@pytest.mark.parametrize(
    "model", ["gat", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)]
)
def test_every_seed_takes_the_steps_that_it_takes_alone(graph, model):
    recipe = RecipeConfig(consistency=1.0, consistency_passes=2)
    config = config_of(model, **({"recipe": recipe} if model == "grand" else {}))
    task = config.task_of(graph)
    together = Program(config, graph, task)
    batch = make_batch(graph, together.settings, together.spread)

    @jax.jit
    def all_steps(state):
        return several_seeds.advance(together, state, batch, np.int32(STEPS), STEPS)

    state, losses_ts = all_steps(several_seeds.initial_state(together))
    assert int(state.step) == STEPS
    assert bool(state.healthy)
    number = SEEDS - 1
    alone = Program(dataclasses.replace(config, seeds=1, seed=config.seed + number), graph, task)
    steps = jax.jit(lambda state: alone.advance(state, batch, np.int32(STEPS), STEPS))
    _, losses_t = steps(alone.initial_state())
    np.testing.assert_allclose(losses_ts[:, number], losses_t, rtol=0, atol=2e-5)
    assert len(np.unique(np.asarray(losses_ts[0]))) == SEEDS


@pytest.fixture(scope="module")
def finished(graph, tmp_path_factory):
    config = config_of("gcn", **LONGER, out=tmp_path_factory.mktemp("seeds") / "run")
    return gtjax.fit(graph, config=config, show_progress=False)


def test_metrics_are_means_with_deviations(finished):
    values = finished.values
    each = [seed["test_accuracy"] for seed in values["seeds"]]
    assert [seed["seed"] for seed in values["seeds"]] == [5, 6, 7]
    assert values["test_accuracy"] == pytest.approx(np.mean(each))
    assert values["test_accuracy_deviation"] == pytest.approx(np.std(each, ddof=1))
    page = (finished.folder / "report.html").read_text()
    assert f"{values['test_accuracy']:.4f} ± {values['test_accuracy_deviation']:.4f}" in page
    row = json.loads((finished.folder / "metrics.jsonl").read_text().splitlines()[4])
    assert row["loss"] == pytest.approx(np.mean(row["seeds"]["loss"]))
    assert len(row["seeds"]["val_accuracy"]) == SEEDS


def test_a_seed_keeps_what_it_would_have_kept_alone(graph, finished, tmp_path):
    """Its patience is its own: what it finds after that, while others train, does not count."""
    stopped = min(finished["seeds"], key=lambda each: each["best_step"])
    assert stopped["best_step"] + 10 <= finished["steps"], "others went on for longer"
    config = config_of("gcn", **LONGER, seeds=1, seed=stopped["seed"], out=tmp_path / "run")
    alone = gtjax.fit(graph, config=config, show_progress=False)
    assert alone["steps"] < finished["steps"]
    assert alone["best_step"] == stopped["best_step"]
    assert alone["test_accuracy"] == pytest.approx(stopped["test_accuracy"], abs=1e-6)


def test_predictions_are_the_mean_of_all_seeds(finished):
    run = gtjax.load_run(finished.folder)
    together, graph = run.predict(), run.graph
    batch = make_batch(graph, run._program.settings, run._program.spread)
    each = []
    for number in range(SEEDS):
        outputs, _ = run._program.predict(several_seeds.member(run.params, number), batch)
        each.append(jax.nn.softmax(outputs.outputs))
    order_n = np.argsort(np.asarray(batch.inputs.node_ids_n)[: graph.num_nodes])
    mean_nc = np.mean(each, axis=0)[order_n]
    np.testing.assert_allclose(together.answers_nc, mean_nc, atol=1e-5)
    right_n = together.chosen_n == graph.labels_n
    share = right_n[graph.split_n["test"]].mean()
    assert finished["ensemble_test_accuracy"] == pytest.approx(share, abs=1e-6)
    assert run.embed().shape == (graph.num_nodes, SEEDS * 8)
    assert run.evaluate()["test_accuracy"] == pytest.approx(finished["test_accuracy"], abs=1e-6)


def test_a_stopped_run_goes_on_bit_for_bit(graph, finished, tmp_path):
    class After(StopRequest):
        """Asks to stop once so many steps are written."""

        @property
        def asked(self):
            rows = tmp_path / "run" / "metrics.jsonl"
            return rows.exists() and len(rows.read_text().splitlines()) >= 4

        @asked.setter
        def asked(self, value):
            del value

    config = config_of("gcn", **LONGER, out=tmp_path / "run")
    with pytest.raises(Interrupted):
        gtjax.fit(graph, config=config, show_progress=False, stop=After())
    folder, stored = RunFolder.open(tmp_path / "run")
    again = resume(folder, stored, graph, show_progress=False)
    assert again["losses"] == finished["losses"]
    assert again["seeds"] == finished["seeds"]


@pytest.mark.slow
def test_on_several_devices_seeds_take_turns(graph, tmp_path, capfd):
    parallel = ParallelConfig(devices=2, strategy="node_halo", partitioner="contiguous")
    config = config_of("gcn", seeds=2, steps=5, parallel=parallel, out=tmp_path / "run")
    result = gtjax.fit(graph, config=config)
    assert "one after the other: each is spread over 2 devices" in capfd.readouterr().err
    own = [RunFolder(tmp_path / "run" / f"seed-{s}").read_json("result.json") for s in (5, 6)]
    assert [seed["test_accuracy"] for seed in result["seeds"]] == [e["test_accuracy"] for e in own]
    assert result["losses"] == pytest.approx(np.mean([each["losses"] for each in own], axis=0))
    predicted = gtjax.load_run(result.folder).predict()
    assert predicted.metrics["ensemble_test_accuracy"] == result["ensemble_test_accuracy"]


@pytest.mark.slow
def test_one_that_is_not_finite_is_named(graph):
    config = config_of("gcn", seeds=2)
    program = Program(config, graph, config.task_of(graph))
    batch = make_batch(graph, program.settings, program.spread)
    state = several_seeds.initial_state(program)
    name, kernel = next(iter(state.params["head"].items()))
    bad = {name: jax.tree.map(lambda x: x.at[1].set(np.inf), kernel)}
    state = state._replace(params={**state.params, "head": {**state.params["head"], **bad}})
    after, _ = several_seeds.advance(program, state, batch, np.int32(2), 2)
    assert not bool(after.healthy)
    assert int(after.step) == 0
    assert several_seeds.find_not_finite_seed(program, state, batch).startswith("seed 6: ")


def test_links_do_not_take_turns(graph, tmp_path):
    """One seed would be trained on what another is tested on."""
    parallel = ParallelConfig(devices=2, strategy="node_halo", partitioner="contiguous")
    config = config_of("gcn", seeds=2, steps=2, parallel=parallel, out=tmp_path / "run")
    with pytest.raises(UserError, match="hold out other links"):
        gtjax.fit(graph, config=config, task="link", show_progress=False)


def test_seeds_are_checked():
    with pytest.raises(ValueError, match="seeds is at least 1; found 0"):
        gtjax.TrainConfig(seeds=0)

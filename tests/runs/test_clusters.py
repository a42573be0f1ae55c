"""Training on clusters: gradients alone travel, parts change without compiling, exact metrics."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gtjax.batching.config import BatchesConfig
from gtjax.batching.source import Source
from gtjax.batching.store import make_batches
from gtjax.core.errors import UserError
from gtjax.nn import DecoupledConfig
from gtjax.runs.loop import fit, resume
from gtjax.runs.program import Program
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from gtjax.sharding.collectives import bytes_received, collectives
from gtjax.sharding.config import ParallelConfig
from tests.marks import slow
from tests.runs.small_run import MODEL, STEPS, small_config
from tests.runs.test_resume import newest, start_and_stop

BATCHES = BatchesConfig(batching="clusters", repartition=3, clusters=4)


def isolated_config(out=None, changes=None, devices=4, **more):
    parallel = ParallelConfig(strategy="node_halo", devices=devices)
    batches = replace(BATCHES, **(changes or {}))
    return small_config(out, parallel=parallel, batches=batches, **more)


def test_the_strategy_isolated_is_short_for_clusters():
    config = small_config(parallel=ParallelConfig(strategy="isolated", devices=2))
    assert config.batches.batching == "clusters"
    assert config.parallel.strategy == "node_halo"


@pytest.fixture(scope="module")
def whole(graph, tmp_path_factory):
    """A run that nobody stopped."""
    return fit(graph, config=isolated_config(tmp_path_factory.mktemp("isolated") / "run"))


def program_and_batches(graph, config):
    program = Program(config, graph, config.task_of(graph))
    return program, make_batches(Source(graph), program.settings, program.spread)


def test_gradients_and_the_scalars_of_the_loss_are_all_that_travels(graph):
    """2 (P-1)/P times the bytes of the parameters, within 2 %, by all-reduces."""
    model = replace(MODEL, hidden=32, layers=2, label_input=True)
    program, batches = program_and_batches(graph, isolated_config(model=model))
    params = program.initial_state().params
    step = jax.jit(jax.value_and_grad(program.loss))
    text = step.lower(params, batches.at(0), jnp.int32(0)).compile().as_text()
    assert {each.kind for each in collectives(text)} == {"all-reduce"}
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    assert bytes_received(text, 4) == {"all-reduce": pytest.approx(2 * 3 / 4 * size, rel=0.02)}


def test_an_exact_strategy_moves_more(graph):
    """Or the test above could not fail."""
    config = isolated_config(changes={"batching": "full"})
    program, batches = program_and_batches(graph, config)
    step = jax.jit(jax.value_and_grad(program.loss))
    params = program.initial_state().params
    text = step.lower(params, batches.at(0), jnp.int32(0)).compile().as_text()
    assert {each.kind for each in collectives(text)} > {"all-reduce"}


@contextmanager
def compilations():
    """Counts what is compiled meanwhile."""
    seen: Counter[str] = Counter()

    def listen(event, duration, **_):
        seen[event] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: seen["/jax/core/compile/backend_compile_duration"]
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.slow
def test_a_run_with_twenty_draws_compiles_four_programs(graph, whole, out):
    """The start, a step, an evaluation and a prediction; `whole` has compiled the rest."""
    config = isolated_config(out, {"repartition": 2}, steps=40)
    with compilations() as count:
        result = fit(graph, config=config, show_progress=False)
    assert len([row for row in rows_of(result) if "coverage" in row]) == 20
    assert count() == 4


def rows_of(result):
    text = (result.folder / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("looks", [slow(8), 10])
@pytest.mark.slow
def test_a_stopped_run_ends_like_one_that_was_not(graph, whole, out, monkeypatch, looks):
    config = isolated_config(out)
    start_and_stop(monkeypatch, graph, config, looks)
    assert 0 < int(newest(out, config, graph).state.step) < STEPS
    resumed = resume(*RunFolder.open(out), graph, show_progress=False)
    same = ("losses", "test_accuracy", "best_step", "coverage", "approximate")
    assert [resumed[name] for name in same] == [whole[name] for name in same]
    jax.tree.map(
        np.testing.assert_array_equal,
        newest(out, config, graph),
        newest(whole.folder, config, graph),
    )


def test_parts_change_at_the_steps_asked_for_and_at_no_others(graph, whole):
    assert [row["step"] for row in rows_of(whole) if "coverage" in row] == [1, 4, 7, 10]
    _, batches = program_and_batches(graph, isolated_config())
    nodes = [np.asarray(batches.at(step).inputs.node_ids_n).tobytes() for step in range(7)]
    assert nodes[0] == nodes[1] == nodes[2] != nodes[3] == nodes[4] == nodes[5] != nodes[6]
    assert [batches.span(step) for step in range(4)] == [3, 2, 1, 3]
    _, fixed = program_and_batches(graph, isolated_config(changes={"repartition": 0}))
    assert fixed.at(0) is fixed.at(10**6)
    assert fixed.span(5) is None


def test_the_result_and_the_report_say_that_it_is_approximate(whole):
    assert whole["approximate"] is True
    coverage = whole["coverage"]
    assert 0 < coverage["min"] <= coverage["mean"] <= coverage["max"] < 1
    page = (whole.folder / "report.html").read_text(encoding="utf-8")
    words: list[str] = []
    parser = HTMLParser()
    parser.handle_data = words.append  # type: ignore[method-assign]
    parser.feed(page)
    text = " ".join(words)
    assert "Training was approximate" in text
    assert f"saw {100 * coverage['mean']:.0f} % of their neighbourhoods on average" in text


def test_metrics_and_predictions_are_those_of_the_whole_graph(graph, whole):
    """One device, which sees every edge, gives the same with the parameters of the run."""
    folder, config = RunFolder.open(whole.folder)
    spread = TrainedRun(folder, config).predict(graph)
    alone = replace(config, parallel=ParallelConfig(strategy="single"), batches=BatchesConfig())
    single = TrainedRun(folder, alone).predict(graph)
    np.testing.assert_allclose(spread.answers_nc, single.answers_nc, atol=1e-5)
    for name, value in spread.metrics.items():
        assert value == pytest.approx(whole[name], abs=1e-6)
        assert value == pytest.approx(single.metrics[name], abs=1e-6)


def test_gradients_of_a_part_are_multiplied_by_its_weight(graph):
    """The gradient of all parts is the sum of those of each alone, times their weights."""
    config = isolated_config(model=replace(MODEL, dropout=0.0))
    program, batches = program_and_batches(graph, config)
    batch = batches.at(0)
    params = program.initial_state().params
    weight_n = np.asarray(batch.weight_n)
    rows = len(weight_n) // 4
    gradient = jax.jit(jax.grad(program.loss))
    together = gradient(params, batch, jnp.int32(0))
    total, weights = jax.tree.map(jnp.zeros_like, params), []
    for part in range(4):
        mine_n = np.arange(len(weight_n)) // rows == part
        there_n = mine_n & np.asarray(batch.inputs.valid_n)
        (weight,) = set(weight_n[there_n])  # one for all nodes of a part
        weights.append(weight)
        alone = batch._replace(weight_n=place_like(batch.weight_n, mine_n))
        alone = gradient(params, alone, jnp.int32(0))
        total = jax.tree.map(lambda t, a, w=weight: t + w * a, total, alone)
    assert len(set(weights)) > 1
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), together, total
    )


def place_like(array, values):
    return jax.device_put(values.astype(array.dtype), array.sharding)


def test_without_correction_all_weights_are_one(graph):
    _, batches = program_and_batches(graph, isolated_config(changes={"coverage": "none"}))
    batch = batches.at(0)
    valid_n = np.asarray(batch.inputs.valid_n)
    assert set(np.asarray(batch.weight_n)[valid_n]) == {1.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm": "batch"}, "--model.norm batch"),
        ({"global_attention": True}, "--model.global-attention"),
    ],
)
def test_models_that_exchange_more_than_gradients_are_refused(graph, out, changes, said):
    config = isolated_config(out, model=replace(MODEL, **changes))
    with pytest.raises(UserError, match=f"nothing but gradients; {said}"):
        fit(graph, config=config, show_progress=False)
    assert not out.exists()


@pytest.mark.slow
def test_it_runs_on_one_device_and_with_the_decoupled_model(graph, out):
    shape = {"hidden": MODEL.hidden, "layers": MODEL.layers, "heads": MODEL.heads}
    model = DecoupledConfig(**shape, positional="random_walk", label_input=True)
    result = fit(graph, config=isolated_config(out, devices=1, model=model))
    assert result["coverage"] == {"mean": 1.0, "min": 1.0, "max": 1.0}

"""Training by plan: what is chosen runs, is compared with what was promised, and may be changed."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from gtjax.batching import prepare
from gtjax.core.errors import UserError
from gtjax.runs import planning
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from gtjax.sharding.config import ParallelConfig
from tests.planner.profiles import profile
from tests.runs.small_run import STEPS, small_config


@pytest.fixture
def hardware(tmp_path):
    """A profile that is made up, as a file."""
    profile().save(tmp_path / "hardware.json")
    return str(tmp_path / "hardware.json")


@pytest.mark.slow
def test_auto_runs_what_the_plan_says_and_reports_both(graph, out, hardware):
    parallel = ParallelConfig(devices=4, hardware=hardware)
    result = fit(graph, config=small_config(out, parallel=parallel), show_progress=False)
    plan = json.loads((out / "plan.json").read_text())
    assert result["strategy"] == plan["chosen"]["strategy"]
    assert result["mesh"] == plan["chosen"]["mesh"]
    seen = result["plan"]
    assert seen["predicted_seconds"] == pytest.approx(plan["chosen"]["seconds"])
    assert seen["ratio"] == pytest.approx(seen["measured_seconds"] / seen["predicted_seconds"])
    report = (out / "report.html").read_text()
    assert "<h2>The plan</h2>" in report
    assert "predicted" in report
    _, config = RunFolder.open(out)
    assert config.parallel.strategy == result["strategy"]  # a run that is resumed does the same


@pytest.mark.slow
def test_a_run_that_is_slower_than_one_device_is_remarked_on_once(graph, out, tmp_path, capsys):
    """Links so slow that nothing is won by several devices."""
    profile(bandwidth=1e5).save(tmp_path / "slow.json")
    parallel = ParallelConfig(devices=4, hardware=str(tmp_path / "slow.json"))
    fit(graph, config=small_config(out, parallel=parallel, steps=1))
    said = capsys.readouterr().err
    assert said.count("4 devices are predicted to take") == 1
    assert said.count("as long as one device alone") == 1


@pytest.mark.slow
def test_measuring_is_announced_before_it_begins(graph, out, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GTJAX_CACHE_DIR", str(tmp_path))
    before = []

    def measured(devices, *, progress):
        before.append(capsys.readouterr().err)
        return profile(devices=len(devices))

    monkeypatch.setattr(planning, "measured_profile", measured)
    config = small_config(out, parallel=ParallelConfig(devices=2), steps=1)
    fit(graph, config=config)
    assert "measuring 2 devices" in before[0]
    assert f"remembered in {tmp_path}" in before[0]
    quiet = dataclasses.replace(config, out=tmp_path / "quiet")
    capsys.readouterr()
    fit(graph, config=quiet, show_progress=False)
    assert before[1] == ""


def test_a_plan_is_followed_and_nothing_is_done_twice(graph, out, hardware, monkeypatch):
    config = small_config(out, parallel=ParallelConfig(devices=4, hardware=hardware))
    made = planning.plan(graph, config=config)

    def again(*arguments, **named):
        raise AssertionError("planned, prepared or partitioned again")

    monkeypatch.setattr(planning, "plan", again)
    monkeypatch.setattr(prepare, "message_edges", again)
    monkeypatch.setattr(prepare, "partition_graph", again)
    result = fit(graph, config=config, plan=made, show_progress=False)
    assert made.chosen is not None
    assert result["strategy"] == made.chosen.option.strategy.name
    assert result["plan"]["predicted_seconds"] == made.chosen.price.seconds


def test_a_plan_of_another_graph_is_refused(graph, out, hardware):
    config = small_config(out, parallel=ParallelConfig(devices=4, hardware=hardware))
    made = planning.plan(graph.with_self_loops(), config=config)
    with pytest.raises(UserError, match="made for another graph"):
        fit(graph, config=config, plan=made, show_progress=False)


@pytest.mark.slow
def test_a_plan_of_sizes_is_followed_too(graph, out, hardware):
    config = small_config(out, parallel=ParallelConfig(devices=4, hardware=hardware))
    made = planning.plan(planning.Sizes(graph.num_nodes, graph.num_edges, cut=0.5), config=config)
    assert made.chosen is not None
    result = fit(graph, config=config, plan=made, show_progress=False)
    assert result["strategy"] == made.chosen.option.strategy.name


@pytest.mark.slow
def test_the_plan_trains_as_one_device_does(graph, tmp_path, hardware):
    config = small_config(tmp_path / "one")
    alone = fit(graph, config=config, show_progress=False)
    parallel = ParallelConfig(devices=4, hardware=hardware)
    config = small_config(tmp_path / "planned", parallel=parallel)
    planned = fit(graph, config=config, show_progress=False)
    np.testing.assert_allclose(planned["losses"], alone["losses"], rtol=2e-4)


def test_what_does_not_fit_is_refused_before_anything_is_made(graph, out, hardware):
    parallel = ParallelConfig(devices=4, hardware=hardware, memory=1e-5)
    with pytest.raises(UserError, match="does not fit"):
        fit(graph, config=small_config(out, parallel=parallel), show_progress=False)
    assert not out.exists()


def test_one_device_is_held_to_its_memory_too(graph, out):
    with pytest.raises(UserError, match=r"about \d+ devices"):
        fit(
            graph,
            config=small_config(out, parallel=ParallelConfig(memory=1e-5)),
            show_progress=False,
        )
    assert not out.exists()


@pytest.mark.slow
def test_a_plan_that_was_wrong_is_replaced_and_nothing_is_lost(graph, tmp_path):
    """Hardware that promises far too much: every plan is too slow, so the runner-up is tried."""
    fast = profile()
    compute = dataclasses.replace(
        fast.compute, matmul=((32.0, 1e15), (256.0, 1e15)), stream=1e15, bend=1e15, ops=()
    )
    dataclasses.replace(fast, compute=compute).save(tmp_path / "fast.json")
    settings = {"devices": 2, "hardware": str(tmp_path / "fast.json")}
    steps = {"steps": 40, "eval_every": 1}  # a dispatch for every step
    plain = fit(
        graph,
        config=small_config(tmp_path / "plain", parallel=ParallelConfig(**settings), **steps),
        show_progress=False,
    )
    changing = fit(
        graph,
        config=small_config(
            tmp_path / "changing", parallel=ParallelConfig(**settings, replan=True), **steps
        ),
        show_progress=False,
    )
    assert len(plain["plan"]["tried"]) == 1
    assert plain["plan"]["ratio"] > 1.5
    assert len(changing["plan"]["tried"]) == 2
    np.testing.assert_allclose(changing["losses"], plain["losses"], rtol=2e-4)
    kept = changing["plan"]["strategy"]
    assert changing["strategy"] in kept
    assert any(name.startswith(kept) for name in changing["plan"]["tried"])
    changed = TrainedRun(*RunFolder.open(tmp_path / "changing"))  # it knows what it ended as
    found = changed.predict(graph)
    assert len(found.answers_nc) == graph.num_nodes


@pytest.mark.slow
def test_steps_are_as_many_whatever_is_tried(graph, tmp_path, hardware):
    parallel = ParallelConfig(devices=2, hardware=hardware, replan=True)
    result = fit(graph, config=small_config(tmp_path / "r", parallel=parallel), show_progress=False)
    assert len(result["losses"]) == result["steps"] == STEPS


@pytest.mark.slow
def test_a_resumed_run_is_held_to_its_plan_too(graph, out, hardware):
    from gtjax.runs.loop import resume

    parallel = ParallelConfig(devices=2, hardware=hardware)
    first = fit(graph, config=small_config(out, parallel=parallel), show_progress=False)
    again = resume(*RunFolder.open(out), graph, show_progress=False)
    for name in ("strategy", "predicted_seconds", "predicted_peak_bytes", "why"):
        assert again["plan"][name] == first["plan"][name]
    assert again["plan"]["ratio"] > 0

"""Training by plan: what is chosen runs, is compared with what was promised, and may be changed."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from gtjax.graph import UserError
from gtjax.sharding.config import ParallelConfig
from gtjax.training.loop import fit
from gtjax.training.run_folder import RunFolder
from gtjax.training.trained import predict
from tests.planner.profiles import profile
from tests.training.small_run import STEPS, small_config


@pytest.fixture
def hardware(tmp_path):
    """A profile that is made up, as a file."""
    profile().save(tmp_path / "hardware.json")
    return str(tmp_path / "hardware.json")


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
    assert "<h2>Plan</h2>" in report
    assert "predicted seconds a step" in report
    _, config = RunFolder.open(out)
    assert config.parallel.strategy == result["strategy"]  # a run that is resumed does the same


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


def test_a_plan_that_was_wrong_is_replaced_and_nothing_is_lost(graph, tmp_path):
    """Hardware that promises far too much: every plan is too slow, so the runner-up is tried."""
    fast = profile()
    compute = dataclasses.replace(
        fast.compute, matmul=((32.0, 1e15), (256.0, 1e15)), stream=1e15, bend=1e15, attention=()
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
    best = min(changing["plan"]["tried"], key=changing["plan"]["tried"].get)
    assert best.startswith(kept)
    found = predict(*RunFolder.open(tmp_path / "changing"), graph)  # it knows what it ended as
    assert len(found.probabilities_nc) == graph.num_nodes


def test_steps_are_as_many_whatever_is_tried(graph, tmp_path, hardware):
    parallel = ParallelConfig(devices=2, hardware=hardware, replan=True)
    result = fit(graph, config=small_config(tmp_path / "r", parallel=parallel), show_progress=False)
    assert len(result["losses"]) == result["steps"] == STEPS


def test_a_resumed_run_is_held_to_its_plan_too(graph, out, hardware):
    from gtjax.training.loop import resume

    parallel = ParallelConfig(devices=2, hardware=hardware)
    first = fit(graph, config=small_config(out, parallel=parallel), show_progress=False)
    again = resume(*RunFolder.open(out), graph, show_progress=False)
    for name in ("strategy", "predicted_seconds", "predicted_peak_bytes", "why"):
        assert again["plan"][name] == first["plan"][name]
    assert again["plan"]["ratio"] > 0

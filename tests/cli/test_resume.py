"""`gtjax resume` with other devices than the run began with, or with more steps."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from gtjax.cli import train
from gtjax.cli.resume import Resume, _fitting_the_devices, changed, with_steps
from gtjax.distributed.join import Processes
from gtjax.runs.config import TrainConfig, to_mapping
from gtjax.runs.run_folder import RunFolder
from gtjax.sharding.config import ParallelConfig
from tests.cli.small_options import SMALL
from tests.marks import slow

HALO = ParallelConfig(strategy="node_halo", devices=4, mesh="node=4,feature=1")
ONE = ParallelConfig(strategy="single")
ONE_OF_FOUR = ParallelConfig(strategy="single", devices=1)
ANY_RING = ParallelConfig(strategy="node_ring")


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        (HALO, {}, HALO),
        (HALO, {"devices": 3}, {"strategy": "node_halo", "devices": 3, "mesh": None}),
        (HALO, {"devices": 1}, {"strategy": "single", "devices": 1, "mesh": None}),
        (HALO, {"strategy": "node_ring"}, {"strategy": "node_ring", "devices": 4, "mesh": None}),
        (HALO, {"strategy": "single"}, {"strategy": "single", "devices": 1, "mesh": None}),
        (
            HALO,
            {"mesh": "node=2,feature=2", "strategy": "node_by_feature"},
            {"strategy": "node_by_feature", "devices": None, "mesh": "node=2,feature=2"},
        ),
        (ONE, {"devices": 2}, {"strategy": "auto", "devices": 2, "mesh": None}),
        (ONE, {"partitioner": "random"}, {"strategy": "single", "partitioner": "random"}),
    ],
)
def test_what_is_said_wins_and_the_rest_fits_it(before, wanted, after):
    config = TrainConfig(parallel=before)
    made = changed(config, Resume(Path("x"), **wanted))
    if isinstance(after, dict):
        after = dataclasses.replace(before, **after)
    assert made == dataclasses.replace(config, parallel=after)


@pytest.mark.parametrize(
    ("asked", "before", "there", "after"),
    [
        ({}, HALO, 3, {"strategy": "auto", "devices": 3, "mesh": None}),
        ({}, HALO, 1, {"strategy": "single", "devices": 1, "mesh": None}),
        ({}, HALO, 4, HALO),
        ({"parallel.strategy": "node_halo"}, HALO, 3, {"devices": 3, "mesh": None}),
        ({"parallel.strategy": "single"}, ONE_OF_FOUR, 3, {"strategy": "auto", "devices": 3}),
        ({"parallel.strategy": "node_ring"}, ANY_RING, 3, ANY_RING),
        (None, HALO, 3, {"devices": 3, "mesh": None}),  # of a run that did not tell
    ],
)
def test_on_other_devices_the_planner_chooses_what_it_chose_before(
    tmp_path, monkeypatch, asked, before, there, after
):
    monkeypatch.setattr(jax, "device_count", lambda: there)
    folder, config = RunFolder(tmp_path), TrainConfig(parallel=before)
    if asked is not None:
        folder.write_json("asked.json", {"settings": asked})
    told = Resume(tmp_path, processes=Processes("a:1", there, 0))
    if isinstance(after, dict):
        after = dataclasses.replace(before, **after)
    assert _fitting_the_devices(folder, config, told).parallel == after


@pytest.fixture(scope="module")
def on_four(tmp_path_factory):
    """A run on four devices that keeps the checkpoints of all of its steps."""
    folder = tmp_path_factory.mktemp("four") / "run"
    spread = ("--strategy", "node_halo", "--devices", "4")
    keep = ("--checkpoint-steps", "1", "--checkpoint-keep", "99")
    assert train.run([*SMALL, *keep, *spread, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    "way",
    [
        slow(("--devices", "3")),
        ("--devices", "2", "--strategy", "feature_all_to_all"),
        ("--devices", "1"),
    ],
    ids=" ".join,
)
@pytest.mark.quick_every(4)
def test_a_run_goes_on_elsewhere(gtjax, on_four, out, way):
    wanted = json.loads((on_four / "result.json").read_text())
    shutil.copytree(on_four, out)
    (out / "result.json").unlink()
    for path in (out / "checkpoints").iterdir():
        if int(path.name) > 1:
            shutil.rmtree(path)
    code, _, stderr = gtjax("resume", str(out), *way)
    assert code == 0, stderr
    assert "at step 1" in stderr
    found = json.loads((out / "result.json").read_text())
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-5)
    assert json.loads((out / "config.json").read_text())["parallel"]["devices"] == int(way[1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three steps."""
    folder = tmp_path_factory.mktemp("resume") / "run"
    assert train.run([*SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copied(finished, out):
    return shutil.copytree(finished, out)


def test_a_finished_run_says_so_without_looking_for_its_graph(gtjax, copied):
    table = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(table | {"data": "gone.npz"}))
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    outcome = gtjax("resume", copied)
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == (
        f"{copied} is finished after 3 steps. To train longer, give the steps in all: "
        f"gtjax resume {copied} --steps 6\n"
    )
    assert gtjax("resume", copied, "--steps", 3).err == outcome.err
    assert before == {path: path.stat().st_mtime_ns for path in copied.rglob("*")}


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.quick_every(4)
def test_more_steps_are_taken_in_all(gtjax, copied, finished, interrupted):
    if interrupted:
        (copied / "result.json").unlink()
    outcome = gtjax("resume", copied, "--steps", 5)
    assert outcome.code == 0, outcome.err
    assert "5 steps instead of 3; the cosine schedule is that of 5 from here on\n" in outcome.err
    before, after = (
        json.loads((folder / "result.json").read_text()) for folder in (finished, copied)
    )
    assert after["losses"][:3] == before["losses"]
    assert len(after["losses"]) == after["steps"] == after["config"]["steps"] == 5
    assert "is finished after 5 steps" in gtjax("resume", copied).err


def test_fewer_steps_than_were_taken_are_refused(gtjax, copied):
    for _ in range(2):
        outcome = gtjax("resume", copied, "--steps", 2)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"at least the 3 that {copied} has taken; found 2" in outcome.err
        (copied / "result.json").unlink(missing_ok=True)


def test_a_run_that_patience_ended_goes_on_without_it(copied):
    folder, config = RunFolder.open(copied)
    config = dataclasses.replace(config, steps=9, patience=1)
    folder.write_json("config.json", to_mapping(config))
    result = folder.read_json("result.json")
    folder.write_json("result.json", result | {"config": to_mapping(config)})
    assert with_steps(folder, config, None)[0] is None
    longer, said = with_steps(folder, config, 20)
    assert (longer.steps, longer.patience) == (20, 0)
    assert "--patience 1 had ended the run" in said

"""`gtjax resume` with other devices than the run began with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from gtjax.cli.resume import Resume, changed
from gtjax.sharding.config import ParallelConfig
from gtjax.training.config import TrainConfig
from tests.cli.small_options import SMALL

HALO = ParallelConfig(strategy="node_halo", devices=4, mesh="node=4,feature=1")
ONE = ParallelConfig(strategy="single")


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
    "way",
    [
        ("--devices", "3"),
        ("--devices", "2", "--strategy", "feature_all_to_all"),
        ("--devices", "1"),
    ],
    ids=" ".join,
)
def test_a_run_goes_on_elsewhere(gtjax, tmp_path, way):
    whole, out = tmp_path / "whole", tmp_path / "run"
    options = (*SMALL, "--checkpoint-steps", "1", "--checkpoint-keep", "99")
    code, _, stderr = gtjax(
        "train", *options, "--strategy", "node_halo", "--devices", "4", "--out", str(whole)
    )
    assert code == 0, stderr
    wanted = json.loads((whole / "result.json").read_text())
    whole.rename(out)
    (out / "result.json").unlink()
    for path in (out / "checkpoints").iterdir():
        if int(path.name) > 1:
            for file in sorted(path.rglob("*"), reverse=True):
                file.unlink() if file.is_file() else file.rmdir()
            path.rmdir()
    code, _, stderr = gtjax("resume", str(out), *way)
    assert code == 0, stderr
    assert "at step 1" in stderr
    found = json.loads((out / "result.json").read_text())
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-5)
    assert json.loads((out / "config.json").read_text())["parallel"]["devices"] == int(way[1])

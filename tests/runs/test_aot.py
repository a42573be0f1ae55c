"""Whole steps compile for TPUs, and move what their strategy says: `pytest -m aot`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.aot_steps import HIDDEN, NODES, STRATEGIES

pytestmark = [
    pytest.mark.aot,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason='libtpu is not installed: pip install -e ".[aot]"',
    ),
]


@pytest.fixture(scope="module")
def steps():
    command = [sys.executable, "-m", "tests.runs.aot_steps", "v5e:2x4"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {step["strategy"]: step for step in found}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_moves_what_the_strategy_says(steps, strategy):
    step = steps[strategy]
    assert step["kernels"] >= 3  # forward, dQ, dK and dV
    moved, demanded = dict(step["moved"]), dict(step["demanded"])
    together = moved.pop("all-reduce")  # gradients of parameters
    if "reduce-scatter" not in moved:  # the compiler may make an all-reduce of it
        together -= 2 * demanded.pop("reduce-scatter", 0)
    assert 0 < together < 1e6
    for kind, amount in demanded.items():
        assert moved.pop(kind) == pytest.approx(amount, rel=0.02), kind
    assert sum(moved.values()) < 0.02 * sum(demanded.values()), moved


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_table_is_padded_to_many_times_its_size(steps, strategy):
    step = steps[strategy]
    own = NODES / 8 * HIDDEN * 4
    # Rows of others, packed for the kernel, and their gradients; a few tables of its own.
    assert step["temporary"] < 3 * step["remote"] + 8 * own

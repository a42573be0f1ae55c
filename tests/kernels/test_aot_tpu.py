"""The TPU kernels compile for real chips, forward and backward, without one: `pytest -m aot`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.aot_tpu_programs import EDGES, programs_of

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.aot,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason='libtpu is not installed: pip install -e ".[aot]"',
    ),
]


OTHERS = [pytest.param(chip, marks=pytest.mark.slow) for chip in ("v5p:2x2x1", "v6e:2x4")]


@pytest.mark.parametrize("chip", ["v5e:2x4", "tpu7x:2x2x1", *OTHERS])
def test_forward_and_backward_compile(chip):
    command = [sys.executable, "-m", "tests.kernels.aot_tpu_programs", chip]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 1 + len(programs_of(chip))
    for program in found:
        # Forward, by receiver and by sender, for each group of heads. A sum without weights has
        # nothing to do by receiver.
        least = 2 if program["program"].startswith("sum 1x") else 3
        assert program["kernels"] >= least, program
        assert program["scatters"] == 0, program
    # Of one value an edge and channel. Indices that are multiplied beforehand are 0.02 of it, and
    # save half a bundle an edge. Rows of nodes are 0.07 of it: the compiler keeps some in VMEM, but
    # that of 7x is too small for them.
    most = 0.78 if chip.startswith("tpu7x") else 0.52
    temporary = {program["program"]: program["temporary"] for program in found}
    assert temporary["dot_product 8x16 float32"] < most * EDGES * 8 * 16 * 4


def test_an_edge_takes_no_more_bundles_than_were_stored(tmp_path):
    result = tmp_path / "bundles.json"
    command = [sys.executable, "experiments/tpu_bundles.py", "--types", "float32"]
    done = subprocess.run(
        [*command, "--result", result], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    stored = json.loads((ROOT / "experiments/attention/tpu_bundles.json").read_text())
    found, before = (rows["rows"][0] for rows in (json.loads(result.read_text()), stored))
    for name, most in (("forward", 9), ("receivers", 9), ("senders", 10)):
        assert found[name]["an_edge"] <= min(most, 1.05 * before[name]["an_edge"]), found

"""The short form of `experiments/chaos.py`: real processes that are killed, preempted and stuck."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_runs_survive_what_happens_to_them(tmp_path):
    rows = ("damage", "disturb", "stuck")
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "experiments" / "chaos.py"), "--short"),
            *("--rows", *rows, "--out", str(tmp_path), "--seed", "1"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["rows"]
    assert list(found) == list(rows)
    assert all(row["held"] for row in found.values())

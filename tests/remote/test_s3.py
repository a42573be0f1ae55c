"""Against a real S3 server on the loopback address, moto's; faults by `experiments`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_faults_on_the_way_to_s3_lose_nothing(tmp_path):
    pytest.importorskip("s3fs", reason="needs gtjax[s3]")
    pytest.importorskip("moto.server", reason='needs "moto[server]"')
    script = str(ROOT / "experiments" / "object_store.py")
    done = subprocess.run(
        [sys.executable, script, "--cases", "24", "--seed", "1", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert found["held"]
    assert found["injected"] >= 12

"""Stored results belong to the stored configs, and the README shows them as they are."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from gtjax.training.config import read_config, to_mapping

ROOT = Path(__file__).parents[1]
ACCURACY = ROOT / "experiments" / "accuracy"
RESULTS = json.loads((ACCURACY / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(ACCURACY.glob("*.toml")), ids=lambda path: path.stem)
def test_every_config_has_the_result_it_gave(path):
    wanted, found = to_mapping(read_config(path)), RESULTS[path.stem]["config"]
    for name in ("data", "seed", "split", "out"):  # what the script sets or repeats
        wanted.pop(name)
        found.pop(name, None)
    assert found == wanted
    result = RESULTS[path.stem]
    tests = [run[f"test_{result['metric']}"] for run in result["runs"]]
    assert result["mean"] == pytest.approx(sum(tests) / len(tests))
    assert result["versions"]["jax"]


def test_the_readme_shows_the_stored_results():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = runpy.run_path(str(ROOT / "experiments" / "accuracy.py"))
    for line in script["table"](RESULTS).splitlines():
        assert line in readme, f"README lacks: {line}"

"""Every example runs as it stands, and is short."""

from __future__ import annotations

import runpy
from pathlib import Path

import jax
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "experiments" / "examples").glob("*.py"))
NEEDS = {"own_graph_from_pandas": "pandas", "graph_classification": "networkx"}
NEEDS |= {"fine_tuning": "safetensors"}


def test_there_are_eight_and_they_are_short():
    assert len(EXAMPLES) == 8
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 40, path.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.slow
def test_an_example_runs(path, tmp_path, monkeypatch):
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    monkeypatch.chdir(tmp_path)
    update = jax.config.update

    def without_devices(name, value):  # of which there are enough, and jax has counted them
        if name != "jax_num_cpu_devices":
            update(name, value)

    monkeypatch.setattr(jax.config, "update", without_devices)
    runpy.run_path(str(path))

"""A model of one's own: trained, kept, continued and used by its class or its name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flax import nnx

import gtjax as public
from gtjax.core.errors import UserError
from gtjax.datasets import load
from gtjax.nn.models import MODELS
from gtjax.runs.config import read_config
from gtjax.runs.loop import fit
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.trained import TrainedRun
from tests.marks import slow
from tests.runs.small_run import DATA, small_config

MODULE = """
from dataclasses import dataclass
import jax
from flax import nnx

@dataclass(frozen=True)
class Config:
    hidden: int = 8

class Mean(nnx.Module):
    Config = Config
    def __init__(self, config, sizes, *, rngs):
        self.own = nnx.Linear(sizes.features, config.hidden, rngs=rngs)
        self.other = nnx.Linear(sizes.features, config.hidden, rngs=rngs)
    def __call__(self, inputs, neighbours):
        x_nf = inputs.noise.drop(inputs.x_nf, 0.1)
        return jax.nn.relu(self.own(x_nf) + neighbours.mean(self.other(x_nf)))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_models:Mean"
    MODELS.pop("own_models:Mean", None)


def test_a_model_of_ones_own_is_trained_from_the_command_line(module, tmp_path):
    from gtjax.cli import train

    options = ["--data", DATA, "--steps", "3", "--out", str(tmp_path / "run")]
    assert train.run([*options, "--model", module, "--model.hidden", "6"]) == 0
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["model"] == {"name": module, "hidden": 6}
    MODELS.pop(module)  # as in another process
    folder, config = RunFolder.open(tmp_path / "run")
    found = TrainedRun(folder, config).predict(load(DATA))
    assert found.embeddings_nf.shape == (300, 6)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found.metrics["test_accuracy"] == result["test_accuracy"]


class Local(nnx.Module):
    """Nothing but a layer, without settings."""

    def __init__(self, sizes, *, rngs):
        self.layer = nnx.Linear(sizes.features, 5, rngs=rngs)

    def __call__(self, inputs, neighbours):
        return self.layer(neighbours.mean(inputs.x_nf))


def test_a_class_is_trained_as_it_is(tmp_path):
    result = public.fit(load(DATA), Local, small_config(tmp_path / "run"), show_progress=False)
    assert np.isfinite(result["losses"]).all()
    assert result["losses"][-1] < result["losses"][0]
    assert result["config"]["model"] == {"name": f"{__name__}:Local"}
    assert read_config(tmp_path / "run" / "config.json").model is not None


def test_a_class_that_cannot_be_imported_again_has_to_be_given(tmp_path):
    class Hidden(Local):
        pass

    fit(load(DATA), Hidden, small_config(tmp_path / "run", steps=2), show_progress=False)
    name = f"{__name__}:{Hidden.__qualname__}"
    MODELS.pop(name)  # as in another process
    with pytest.raises(UserError, match=r"cannot be imported.*pass the class itself \(model="):
        RunFolder.open(tmp_path / "run")
    _, config = RunFolder.open(tmp_path / "run", model=Hidden)
    assert type(config.model) is MODELS[name].config


def test_what_is_more_than_parameters_is_refused_with_advice(tmp_path):
    class Stateful(Local):
        def __init__(self, sizes, *, rngs):
            super().__init__(sizes, rngs=rngs)
            self.norm = nnx.BatchNorm(5, rngs=rngs)

    with pytest.raises(UserError, match=r"norm\.\w+ is BatchStat. Take randomness from"):
        fit(load(DATA), Stateful, small_config(tmp_path / "run"), show_progress=False)


@pytest.mark.parametrize("name", ["gcn", slow("sage")])
def test_models_by_name_train(name, tmp_path):
    config = small_config(tmp_path / "run")
    result = public.fit(load(DATA), name, config, show_progress=False)
    assert result["losses"][-1] < result["losses"][0]
    assert result["config"]["model"]["name"] == name

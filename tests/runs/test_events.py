"""TensorBoard events, on request."""

from __future__ import annotations

import builtins

import pytest

from gtjax.core.errors import UserError
from gtjax.runs.config import RuntimeConfig
from gtjax.runs.events import EventWriter
from gtjax.runs.loop import fit
from tests.runs.small_run import small_config


def test_a_run_writes_events_if_asked(graph, out):
    result = fit(
        graph,
        config=small_config(out, runtime=RuntimeConfig(tensorboard=True)),
        show_progress=False,
    )
    (file,) = (result.folder / "tensorboard").iterdir()
    content = file.read_bytes()
    # One record per step for the loss, one per evaluation for each metric and the loss of val.
    assert content.count(b"val_loss") == 3
    assert content.count(b"loss") == 12 + 3
    assert content.count(b"val_accuracy") == 3


def test_nothing_is_written_unless_asked(out):
    with EventWriter(out, wanted=False) as events:
        events.write([{"step": 1, "loss": 0.5}])
    assert not out.exists()


def test_a_missing_extra_is_named(out, monkeypatch):
    real = builtins.__import__

    def without_tensorboard(name, *arguments, **options):
        if name == "tensorboardX":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_tensorboard)
    with pytest.raises(UserError, match=r'pip install "gtjax\[tensorboard\]"'):
        EventWriter(out, wanted=True)

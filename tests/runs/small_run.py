"""The run that most of these tests make: few steps of a small model on a small graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gtjax.nn import ModelConfig
from gtjax.runs.config import OptimConfig, TrainConfig

DATA = "synthetic-citation:nodes=300,classes=4,signal=3"
STEPS = 12
MODEL = ModelConfig(hidden=8, layers=1, heads=2, dropout=0.1)
OPTIM = OptimConfig(learning_rate=0.03, warmup=2)


def small_config(out: Path | None = None, **changes) -> TrainConfig:
    """A config that learns something within a dozen steps."""
    config = TrainConfig(data=DATA, steps=STEPS, eval_every=4, out=out, model=MODEL, optim=OPTIM)
    return replace(config, **changes)

"""The configuration of a run: nested frozen dataclasses, from a file, the command line or Python.

Free of jax, so that `--help` is instant. A file is TOML or JSON with the same names as the fields;
an unknown name is an error that suggests the nearest one.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from gtjax.graph.errors import UserError
from gtjax.nn.config import ModelConfig
from gtjax.sharding.config import ParallelConfig

T = TypeVar("T")


@dataclass(frozen=True)
class OptimConfig:
    """AdamW and what surrounds it."""

    learning_rate: float = 3e-3
    """Largest step size."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """What the step size does after the warm-up."""
    warmup: int = 10
    """Steps over which the step size grows to its largest."""
    weight_decay: float = 1e-2
    """Decoupled decay of the matrices; vectors (biases, norms) are left alone."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    label_smoothing: float = 0.0
    """Probability spread evenly over the classes in the target."""
    average: float = 0.0
    """Decay of the moving average of the weights that is evaluated; 0 evaluates the last ones."""
    hidden_labels: float = 0.5
    """With model.label_input: share of the training labels hidden, and predicted, in each step."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "optim.learning_rate is positive", self.learning_rate)
        _require(self.warmup >= 0, "optim.warmup is not negative", self.warmup)
        _require(self.weight_decay >= 0, "optim.weight_decay is not negative", self.weight_decay)
        _require(self.clip >= 0, "optim.clip is not negative", self.clip)
        for name in ("label_smoothing", "average"):
            _require(
                0 <= getattr(self, name) < 1, f"optim.{name} is in [0, 1)", getattr(self, name)
            )
        rule = "optim.hidden_labels is in (0, 1]"
        _require(0 < self.hidden_labels <= 1, rule, self.hidden_labels)


@dataclass(frozen=True)
class PrepareConfig:
    """What is done to the graph before training."""

    symmetrise: bool = True
    """Let messages flow both ways along every edge."""
    self_loops: bool = True
    """Let every node attend to itself."""
    features: Literal["auto", "none", "row", "standard"] = "auto"
    """Scale each row to sum 1 ("row"), or each column to zero mean and unit variance ("standard").
    "auto" takes "row" for mostly zero, non-negative features such as bags of words."""
    reorder: Literal["auto", "always", "never"] = "auto"
    """Let neighbours stand close together in memory, for speed: "auto" does where the graph is too
    large for a cache. What comes out is in the graph's own order all the same."""


@dataclass(frozen=True)
class RuntimeConfig:
    """What is kept of a run while it runs, and what watches over it."""

    checkpoint_seconds: float = 60.0
    """Time between checkpoints; there is always one at the end."""
    checkpoint_steps: int = 0
    """Also a checkpoint every so many steps; 0 goes by time only."""
    checkpoint_keep: int = 2
    """Checkpoints kept, the newest; more than one in case that one gets damaged."""
    watchdog_seconds: float = 60.0
    """What a few steps may take before the run counts as stuck, or ten times the median if that is
    more."""
    profile: bool = False
    """Trace a few steps with jax.profiler, into the run's folder."""
    tensorboard: bool = False
    """Also write TensorBoard events (needs the extra "tensorboard")."""

    def __post_init__(self) -> None:
        for name, least in (("checkpoint_keep", 1), ("watchdog_seconds", 10)):
            rule = f"runtime.{name} is at least {least}"
            _require(getattr(self, name) >= least, rule, getattr(self, name))
        for name in ("checkpoint_seconds", "checkpoint_steps"):
            rule = f"runtime.{name} is not negative"
            _require(getattr(self, name) >= 0, rule, getattr(self, name))


@dataclass(frozen=True)
class TrainConfig:
    """A training run."""

    data: str = "synthetic-citation"
    """Name of a data set or generator ("rmat:nodes=1e5"), or a path."""
    split: int = 0
    """Which of the data set's splits into train, val and test."""
    steps: int = 200
    """Training steps; each sees the whole graph."""
    seed: int = 0
    """Seed of parameters and dropout."""
    out: Path | None = None
    """Folder of the run; by default a new one under runs/."""
    metric: Literal["auto", "accuracy", "roc_auc"] = "auto"
    """What is validated; "auto" is accuracy, or ROC-AUC for multi-label data."""
    eval_every: int = 10
    """Steps between evaluations."""
    patience: int = 0
    """Stop after so many steps without a better validation metric; 0 never stops early."""
    kernel: str = "auto"
    """Attention back end: "auto" takes the best that runs here, or "cpu", "gpu", "tpu", "xla"."""
    parallel: Annotated[ParallelConfig, tyro.conf.arg(name="")] = field(
        default_factory=ParallelConfig
    )
    runtime: Annotated[RuntimeConfig, tyro.conf.arg(name="")] = field(default_factory=RuntimeConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    prepare: PrepareConfig = field(default_factory=PrepareConfig)

    def __post_init__(self) -> None:
        for name in ("steps", "eval_every"):
            _require(getattr(self, name) >= 1, f"{name} is at least 1", getattr(self, name))
        for name in ("patience", "split"):
            _require(getattr(self, name) >= 0, f"{name} is not negative", getattr(self, name))
        _require(0 <= self.seed < 2**32, "seed is in 0..2^32-1", self.seed)
        for name, value in _numbers(self):
            _require(math.isfinite(value), f"{name} is finite", value)


def read_config(path: str | Path) -> TrainConfig:
    """Read a TOML or JSON file; what it does not name keeps its default."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: cannot read the config: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: a config is TOML, or JSON if it ends in .json: {error}"
        ) from error
    return from_mapping(TrainConfig, table, str(path))


def to_mapping(config: Any) -> dict[str, Any]:
    """The config as plain JSON types."""
    values = dataclasses.asdict(config)
    return json.loads(json.dumps(values, default=str))


def from_mapping(kind: type[T], table: Any, where: str) -> T:
    """Build the dataclass `kind` from nested tables, strictly: names and types must fit."""
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: a table of settings; found {type(table).__name__}")
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in table.items():
        if name not in hints:
            near = difflib.get_close_matches(str(name), list(hints), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(hints)}."
            raise UserError(f"{where}: unknown setting {name!r}. {hint}")
        values[name] = _convert(hints[name], value, f"{where}: {name}")
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return from_mapping(typing.cast(type, hint), value, where)
    if typing.get_origin(hint) is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise UserError(f"{where} is one of {', '.join(map(str, options))}; found {value!r}")
        return value
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{where} is {hint.__name__}; found {value!r}")
    return value


def _numbers(config: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    for each in dataclasses.fields(config):
        value = getattr(config, each.name)
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{prefix}{each.name}.")
        elif isinstance(value, float):
            yield prefix + each.name, value


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise ValueError(f"{rule}; found {value}")

"""The configuration of a run: nested frozen dataclasses, from a file, the command line or Python.

Free of jax, so that `--help` is instant. A file is TOML or JSON with the same names as the fields;
an unknown name is an error that suggests the nearest one. The table of the model has its settings,
and its `name`.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from gtjax.batching.config import BatchesConfig, BatchingSettings, PrepareConfig
from gtjax.core.errors import UserError
from gtjax.nn import models
from gtjax.nn.config import TransformerConfig, setting_of
from gtjax.recipes.config import RecipeConfig, SmoothConfig
from gtjax.remote.address import shown
from gtjax.sharding.config import ParallelConfig
from gtjax.tasks import base as tasks
from gtjax.tasks.config import TaskConfig
from gtjax.tasks.own import is_own

T = TypeVar("T")


@dataclass(frozen=True)
class OptimConfig:
    """Adam and what surrounds it; see `gtjax/runs/optimiser.py`."""

    learning_rate: float = 3e-3
    """Largest step size."""
    schedule: Literal["cosine", "constant", "plateau"] = "cosine"
    """What the step size does after the warm-up; "plateau" shrinks it whenever the training loss
    has stopped falling."""
    plateau_steps: int = 50
    """With schedule "plateau": steps without a smaller loss, by means of ten, before it shrinks."""
    plateau_factor: float = 0.5
    """With schedule "plateau": what it shrinks by, down to a thousandth in all."""
    warmup: int = 10
    """Steps over which the step size grows to its largest."""
    decay: Literal["decoupled", "coupled"] = "decoupled"
    """"decoupled" shrinks the matrices by themselves (AdamW); "coupled" adds it to the gradients of
    all parameters, vectors included (L2, as torch's Adam)."""
    weight_decay: float = 1e-2
    """How much; decoupled, a share of each matrix at a step size of 1."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    label_smoothing: float = 0.0
    """Probability spread evenly over the classes in the target."""
    average: float = 0.0
    """Decay of the moving average of the weights that is evaluated; 0 evaluates the last ones."""
    hidden_labels: float = 0.5
    """With model.label_input: share of the training labels hidden, and predicted, in each step; a
    sampled step hides those of the nodes that it asks, and no others."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "optim.learning_rate is positive", self.learning_rate)
        _require(self.warmup >= 0, "optim.warmup is not negative", self.warmup)
        rule = "optim.plateau_steps is at least 1"
        _require(self.plateau_steps >= 1, rule, self.plateau_steps)
        rule = "optim.plateau_factor is above 0 and below 1"
        _require(0 < self.plateau_factor < 1, rule, self.plateau_factor)
        _require(self.weight_decay >= 0, "optim.weight_decay is not negative", self.weight_decay)
        _require(self.clip >= 0, "optim.clip is not negative", self.clip)
        for name in ("label_smoothing", "average"):
            _require(
                0 <= getattr(self, name) < 1, f"optim.{name} is in [0, 1)", getattr(self, name)
            )
        rule = "optim.hidden_labels is in (0, 1]"
        _require(0 < self.hidden_labels <= 1, rule, self.hidden_labels)


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
    keep_graph: Literal["auto", "always", "never"] = "auto"
    """Store the graph with the run: "auto" does if it was given in Python and is small (256 MB)."""
    keep_compiled: bool = True
    """Keep compiled programs in the user's cache folder, so that the next run starts at once."""
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
    split: int | str = 0
    """Which of the data set's splits into train, val and test; or "random:60/20/20" (or
    "stratified:...", of each class), drawn by a seed of its own, 0 unless it says another as in
    "random:60/20/20:1", so that runs that differ in --seed have the same split."""
    steps: int = 200
    """Training steps; each sees the whole graph."""
    seed: int = 0
    """Seed of parameters and dropout."""
    seeds: int = 1
    """Train so many models, with this seed and those that follow: in one program where memory
    allows, else one after the other. Metrics are then means, with deviations; predictions are the
    mean of all."""
    out: Path | None = None
    """Folder of the run, by default a new one under runs/; or an address such as
    s3://bucket/run."""
    task: str = tasks.DEFAULT
    """What is asked: "node" (classification), "node_regression", "link", "graph" and
    "graph_regression" (of many graphs); "auto" is what the labels say; your own is module:Class."""
    metric: str = "auto"
    """What is validated, such as accuracy, roc_auc, cross_entropy or mae; "auto" is what suits the
    task and its data; your own is a function, module:function, that gives more for better."""
    weights: Path | None = None
    """Parameters to start from, a safetensors file of `TrainedRun.save_weights`."""
    eval_every: int = 10
    """Steps between evaluations."""
    patience: int = 0
    """Stop after so many steps without a better validation metric; 0 never stops early."""
    kernel: str = "auto"
    """Attention back end: "auto" takes the best that runs here, or "cpu", "gpu", "tpu", "xla"."""
    parallel: Annotated[ParallelConfig, tyro.conf.arg(name="")] = field(
        default_factory=ParallelConfig
    )
    batches: Annotated[BatchesConfig, tyro.conf.arg(name="")] = field(default_factory=BatchesConfig)
    runtime: Annotated[RuntimeConfig, tyro.conf.arg(name="")] = field(default_factory=RuntimeConfig)
    model: Any = field(default_factory=TransformerConfig)
    """The settings of the model, of whose class there is one for each model."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    smooth: SmoothConfig = field(default_factory=SmoothConfig)
    asked: Annotated[TaskConfig, tyro.conf.arg(name="")] = field(default_factory=TaskConfig)
    prepare: PrepareConfig = field(default_factory=PrepareConfig)

    def __post_init__(self) -> None:
        if self.parallel.strategy == "isolated":  # as gradient-only training used to be called
            object.__setattr__(self, "parallel", replace(self.parallel, strategy="node_halo"))
            object.__setattr__(self, "batches", replace(self.batches, batching="clusters"))
        for name in ("steps", "eval_every", "seeds"):
            _require(getattr(self, name) >= 1, f"{name} is at least 1", getattr(self, name))
        _require(self.patience >= 0, "patience is not negative", self.patience)
        if isinstance(self.split, str):
            from gtjax.graph.splits import RandomSplit  # numpy, which help does not need

            RandomSplit.parse(self.split)
        else:
            _require(self.split >= 0, "split is not negative", self.split)
        _require(0 <= self.seed < 2**32, "seed is in 0..2^32-1", self.seed)
        last = self.seed + self.seeds - 1
        _require(last < 2**32, "the last of --seeds is in 0..2^32-1", last)
        metrics = ("auto", *tasks.metrics_of(self.task))
        known = self.metric in metrics or is_own(self.metric)
        _require(known, f"metric is one of {', '.join(metrics)}", repr(self.metric))
        rule = 'loss is "auto" or module:function'
        _require(self.asked.loss == "auto" or is_own(self.asked.loss), rule, repr(self.asked.loss))
        for name, value in _numbers(self):
            _require(math.isfinite(value), f"{name} is finite", value)

    @property
    def preparation(self) -> PrepareConfig:
        """What is done to the graph, where the model has a say in it."""
        if self.prepare.reverse != "auto":
            return self.prepare
        opposite = setting_of(self.model, "tells_direction")
        return replace(self.prepare, reverse="opposite" if opposite else "same")

    def batching(self, forms: tuple[Any, ...], task: tasks.Task) -> BatchingSettings:
        """The part of this config that what a step sees depends on, and the forms of its edges."""
        return BatchingSettings(
            hidden=setting_of(self.model, "hidden"),
            layers=getattr(self.model, "layers", None),
            positional=setting_of(self.model, "positional"),
            positional_size=setting_of(self.model, "positional_size"),
            forms=forms,
            label_input=setting_of(self.model, "label_input"),
            task=json.dumps(tasks.task_to_json(task), sort_keys=True),
            targets=task.targets,
            seed=self.seed,
            parallel=self.parallel,
            prepare=self.preparation,
            batches=self.batches,
        )

    def task_of(self, graph: Any) -> tasks.Task:
        """What is asked of a graph, which is `prepared`; a UserError says what the graph lacks."""
        return self._task_class(graph).of(graph, self._task_settings())

    def prepared(self, graph: Any) -> Any:
        """The graph that a model may see: without what it is asked for. Again is the same."""
        return self._task_class(graph).prepared(graph, self._task_settings())

    def _task_class(self, graph: Any) -> type[tasks.Task]:
        name = tasks.suited_task(graph) if self.task == tasks.DEFAULT else self.task
        entry = tasks.task_entry(name)
        if self.metric not in ("auto", *entry.metrics) and not is_own(self.metric):
            raise UserError(
                f"the task {name} is validated by {', '.join(entry.metrics)}, or by your own "
                f"module:function; found metric {self.metric!r}"
            )
        return entry.load()

    def _task_settings(self) -> tasks.TaskSettings:
        return tasks.TaskSettings(
            metric=self.metric,
            label_smoothing=self.optim.label_smoothing,
            label_input=setting_of(self.model, "label_input"),
            hidden_labels=self.optim.hidden_labels,
            symmetrise=self.prepare.symmetrise,
            seed=self.seed,
            asked=self.asked,
        )


def checked_config(config: Any) -> TrainConfig:
    """The config that was given, or the default; anything else is a mistake."""
    if config is None:
        return TrainConfig()
    if not isinstance(config, TrainConfig):
        raise UserError(
            f"config is a gtjax.TrainConfig; found {type(config).__name__}. Make one as in "
            f"gtjax.TrainConfig(steps=100), or read a file with gtjax.read_config(path)."
        )
    return config


def with_model(config: TrainConfig, model: Any) -> TrainConfig:
    """The config with another model: a name, a class, or the settings of one.

    A name or class keeps the settings that are of its kind.
    """
    if isinstance(model, TrainConfig):
        raise UserError("a TrainConfig is no model: give it by its name, as in config=config")
    try:
        return dataclasses.replace(config, model=models.model_config(model, config.model))
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error


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
    if isinstance(config, TrainConfig):
        values["model"] = {"name": models.model_name(config.model), **values["model"]}
    return json.loads(json.dumps(values, default=_text))


def _text(value: Any) -> str:
    return shown(value) if isinstance(value, Path) else str(value)


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
        convert = _model if (kind, name) == (TrainConfig, "model") else _convert
        values[name] = convert(hints[name], value, f"{where}: {name}")
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _model(hint: Any, table: Any, where: str) -> Any:
    """The settings of the model that the table names."""
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: a table of settings; found {type(table).__name__}")
    settings = dict(table)
    name = _convert(str, settings.pop("name", models.DEFAULT), f"{where}: name")
    try:
        kind = models.model_entry(name).config
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    return from_mapping(kind, settings, where)


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
        hint, *more = (option for option in typing.get_args(hint) if option is not type(None))
        if more:
            if type(value) not in (hint, *more):
                kinds = " or ".join(option.__name__ for option in (hint, *more))
                raise UserError(f"{where} is {kinds}; found {value!r}")
            return value
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

"""The models by name, and how one's own is found; free of jax, so that `--help` is instant.

A model is a Flax module, made from the sizes of its inputs, that takes inputs and neighbours and
gives embeddings `[nodes, width]`:

    class MyModel(nnx.Module):
        Config = MyConfig                               # a frozen dataclass; leave it out for none
        def __init__(self, config, sizes, *, rngs)      # without Config: (self, sizes, *, rngs)
        def __call__(self, inputs, neighbours)          # embeddings; the task brings the head

It is named by its entry in `MODELS`, or by "module:Class". A run stores the name and the settings.
A config's class stands for its model, so every entry has a class of its own: one that another
entry has already is subclassed.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.nn import config as configs

DEFAULT = "transformer"


@dataclass(frozen=True)
class Sizes:
    """How wide the inputs of a model are."""

    features: int
    """Of a node."""
    edge_features: int = 0
    """Of an edge; 0 without."""
    positional: int = 0
    """Columns of the positional encoding; 0 without."""
    classes: int = 0
    """Labels that a node may show (`Inputs.shown_labels_n`)."""


@dataclass(frozen=True)
class ModelEntry:
    """Where a model's class is, and the class of its settings."""

    where: str  # "module:Class", imported when the model is made
    config: type
    cls: type | None = None  # if it is known already
    has_config: bool = True  # whether the class takes settings

    def load(self) -> type:
        """The class of the model."""
        return self.cls or import_class(self.where)

    def make(self, config: Any, sizes: Sizes, *, rngs: Any) -> Any:
        """The model with these settings."""
        cls = self.load()
        return cls(config, sizes, rngs=rngs) if self.has_config else cls(sizes, rngs=rngs)


MODELS: dict[str, ModelEntry] = {
    "transformer": ModelEntry("gtjax.nn.transformer:GraphTransformer", configs.TransformerConfig),
    "decoupled": ModelEntry("gtjax.nn.decoupled:DecoupledTransformer", configs.DecoupledConfig),
    "gcn": ModelEntry("gtjax.nn.gcn:GCN", configs.GCNConfig),
    "sage": ModelEntry("gtjax.nn.sage:GraphSAGE", configs.SAGEConfig),
    "gin": ModelEntry("gtjax.nn.gin:GIN", configs.GINConfig),
    "gat": ModelEntry("gtjax.nn.gat:GAT", configs.GATConfig),
    "gatv2": ModelEntry("gtjax.nn.gatv2:GATv2", configs.GATv2Config),
    "relational": ModelEntry("gtjax.nn.relational:Relational", configs.RelationalConfig),
    "polynormer": ModelEntry("gtjax.nn.polynormer:Polynormer", configs.PolynormerConfig),
    "grand": ModelEntry("gtjax.nn.grand:GRAND", configs.GRANDConfig),
    "sgformer": ModelEntry("gtjax.nn.sgformer:SGFormer", configs.SGFormerConfig),
    "gps": ModelEntry("gtjax.nn.gps:GPS", configs.GPSConfig),
}


def register_model(name: str, cls: type) -> ModelEntry:
    """Add a model of one's own to the table; the same name again takes the place of the first."""
    if not isinstance(cls, type):
        raise ValueError(f"a model is a class; found {cls!r}")
    known = MODELS.get(name)
    if known is not None and known.cls is cls:
        return known
    own = getattr(cls, "Config", None)
    config = own
    if own is None:
        config = dataclasses.make_dataclass(f"{cls.__name__}Config", [], frozen=True)
    elif not (isinstance(own, type) and dataclasses.is_dataclass(own)):
        raise ValueError(f"{cls.__name__}.Config is a frozen dataclass; found {own!r}")
    elif any(entry.config is own for other, entry in MODELS.items() if other != name):
        config = dataclasses.dataclass(frozen=True)(type(own.__name__, (own,), {}))
    assert config is not None
    where = f"{cls.__module__}:{cls.__qualname__}"
    MODELS[name] = ModelEntry(where, config, cls, has_config=own is not None)
    return MODELS[name]


def model_entry(name: str) -> ModelEntry:
    """The model of that name: of the table, or "module:Class"; a ValueError says what is known."""
    if name in MODELS:
        return MODELS[name]
    if ":" in name:
        return register_model(name, import_class(name))
    near = difflib.get_close_matches(name, MODELS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(MODELS)}."
    raise ValueError(f"unknown model {name!r}. {hint} Your own is module:Class.")


def model_config(model: Any, settings: Any = None) -> Any:
    """The config that stands for a model: a name, a class, or a config already.

    `settings` are kept where they are of the model's kind; otherwise it has its defaults.
    """
    if isinstance(model, str):
        entry = model_entry(model)
    elif isinstance(model, type):
        entry = _entry_of_class(model)
    else:
        model_name(model)  # refuses what stands for no model
        return model
    if type(settings) is entry.config:
        return settings
    if settings is not None and type(settings) in entry.config.__mro__[1:-1]:
        return entry.config(**dataclasses.asdict(settings))
    return entry.config()


def model_name(config: Any) -> str:
    """The name of the model that these settings are of."""
    for name, entry in MODELS.items():
        if entry.config is type(config):
            return name
    raise ValueError(
        f"{type(config).__name__} belongs to no model: pass the model's class (gtjax.fit(graph, "
        f"MyModel, config)), or gtjax.register_model(name, MyModel) first"
    )


def _entry_of_class(cls: type) -> ModelEntry:
    where = f"{cls.__module__}:{cls.__qualname__}"
    for entry in MODELS.values():
        if entry.cls is cls or (entry.cls is None and entry.where == where):
            return entry
    return register_model(where, cls)


def import_class(where: str, kind: str = "model") -> type:
    """The class that "module:Class" names; a ValueError says how to give it otherwise."""
    return import_object(where, kind, "class", type)


def import_object(where: str, kind: str, what: str, of: Any = object) -> Any:
    """What "module:name" names, a `what` such as a class; a ValueError says what else to do."""
    module, _, name = where.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `python -m` has it, but last
    found: Any = None
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        reason: object = f"{module} has no {what} {name}"
    except (ImportError, ValueError) as error:  # ValueError: an empty name
        reason = error
    if found is None or not isinstance(found, of):
        raise ValueError(
            f"{kind} {where!r} cannot be imported: {reason}. Put its {what} at the top of a module "
            f"that can be found from here, or pass the {what} itself ({kind}=...)."
        )
    return found

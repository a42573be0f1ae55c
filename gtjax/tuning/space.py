"""The search space: which models and settings are tried on a graph with such traits, and in what
order.

The first trials are recipes that others have published for graphs of a kind, as far as the traits
say that this is one; then optuna's estimator of densities takes over (TPE, Bergstra et al. 2011).
Recipes: tuned classic GNNs (Luo et al. 2024), Polynormer (Deng et al. 2024), GRAND (Feng et al.
2020), APPNP (Gasteiger et al. 2019).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gtjax.batching.config import PrepareConfig
from gtjax.core.errors import UserError
from gtjax.nn.models import MODELS, model_entry
from gtjax.recipes.config import RecipeConfig
from gtjax.runs.config import OptimConfig, TrainConfig
from gtjax.tuning.traits import LARGE, Traits

Params = dict[str, Any]
Choices = dict[str, tuple[Any, ...]]

STACKS = ("gcn", "sage", "gin", "gat", "gatv2", "sgformer", "relational")
ATTENTION = ("gat", "gatv2", "transformer", "decoupled", "polynormer", "gps", "relational")
RATES = (3e-4, 1e-3, 3e-3, 5e-3, 1e-2, 2e-2)
DECAYS = (0.0, 5e-5, 5e-4, 2e-3, 5e-3)
DROPOUTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


def families(traits: Traits, asked: str = "auto") -> tuple[str, ...]:
    """The models that are tried, the most promising first."""
    if asked != "auto":
        names = tuple(name.strip() for name in asked.split(",") if name.strip())
        for name in names:
            try:
                model_entry(name)
            except ValueError as error:
                raise UserError(f"--models: {error}") from error
        return names
    if traits.heterophilous:
        wanted = ("gcn", "sage", "polynormer", "gat", "gps")
    elif traits.few_labels:
        wanted = ("grand", "gcn", "decoupled", "gat", "sage") if traits.classes else ("gcn", "gat")
    else:
        wanted = ("sage", "gat", "gcn", "polynormer", "gps")
    if traits.edge_features:
        wanted = ("relational", *wanted)
    if traits.size > 10 * LARGE:  # where every step takes seconds, the leanest
        wanted = ("sage", "gcn")
    return tuple(name for name in wanted if name in MODELS)


def choices(model: str, traits: Traits) -> Choices:
    """What each setting of a model may be, by its name in the config of a run."""
    few = traits.few_labels and not traits.heterophilous
    known: Choices = {
        "optim.learning_rate": RATES,
        "optim.weight_decay": DECAYS,
        "prepare.features": ("row", "none") if traits.words else ("standard", "none", "row"),
        "model.dropout": DROPOUTS,
        "model.hidden": _widths(traits),
    }
    fields = {each.name for each in dataclasses.fields(model_entry(model).config)}
    if model in STACKS:
        known["model.layers"] = (1, 2, 3, 4) if few else (2, 3, 4, 5, 6, 8, 10, 12)
        known["model.norm"] = ("none", "layer", "batch")
        known["model.residual"] = (False, True)
    elif model == "grand":
        known |= {
            "model.hidden": (32, 64, 128),
            "model.layers": (2, 4, 6, 8),
            # Dropped before propagation: dropping after it takes ten times as long.
            "model.feature_dropout": (0.0, 0.25, 0.5),
            "model.input_dropout": (0.0,),
            "recipe.consistency": (0.5, 0.7, 1.0, 1.5),
            "recipe.consistency_passes": (2, 4),
            "recipe.consistency_temperature": (0.2, 0.3, 0.5),
        }
    elif model == "decoupled":
        known |= {"model.layers": (3, 5, 10), "model.restart": (0.05, 0.1, 0.2)}
        known["model.norm"] = ("none", "layer")
    elif model == "polynormer":
        known |= {"model.layers": (3, 5, 7, 10), "model.global_layers": (0, 1, 2, 3)}
        known["model.input_dropout"] = (0.0, 0.1, 0.2)
    elif "layers" in fields:
        known["model.layers"] = (2, 3, 4)
    if model in ATTENTION and "heads" in fields:
        known["model.heads"] = (1, 4, 8)
    if few and model in STACKS:
        known["model.input_dropout"] = (0.0, 0.2, 0.5)
    one_class = traits.classes > 1 and model != "grand"
    if one_class and not traits.heterophilous:
        known["recipe.sharpening"] = (0.0, 0.1, 0.3, 0.6, 1.3)
    if one_class and traits.labelled >= 0.3 and "label_input" in fields:
        known["model.label_input"] = (False, True)
    return {name: values for name, values in known.items() if _exists(name, fields)}


def recipes(traits: Traits, asked: tuple[str, ...]) -> Iterator[tuple[str, Params]]:
    """Published settings for graphs of this kind, by name, the most promising first."""
    features = "row" if traits.words else "standard"
    for name, model, settings in _recipes(traits):
        if model in asked:
            wanted = {"prepare.features": features, **_USUAL, **settings}
            yield name, {"model": model, **_nearest(wanted, choices(model, traits))}


def suggested(trial: Any, models: tuple[str, ...], traits: Traits) -> Params:
    """Draw a model and its settings for an optuna trial."""
    model = trial.suggest_categorical("model", list(models))
    params = {"model": model}
    for name, values in choices(model, traits).items():
        # Settings of the same name mean the same in stacks, and something else elsewhere.
        own = name if model in STACKS or name.startswith(("optim.", "prepare.")) else None
        params[name] = trial.suggest_categorical(own or f"{model}:{name}", list(values))
    return params


def as_suggested(params: Params) -> Params:
    """Settings by the names that `suggested` draws them by, for a trial that is to have these."""
    model = params["model"]
    shared = ("optim.", "prepare.")
    return {
        name
        if name == "model" or model in STACKS or name.startswith(shared)
        else f"{model}:{name}": value
        for name, value in params.items()
    }


def config_of(params: Params, base: TrainConfig) -> TrainConfig:
    """The config of a run with these settings."""
    tables: dict[str, dict[str, Any]] = {"optim": {}, "model": {}, "recipe": {}, "prepare": {}}
    for name, value in params.items():
        if name != "model":
            table, _, key = name.partition(".")
            tables[table][key] = value
    kind = model_entry(params["model"]).config
    if "heads" in tables["model"]:
        tables["model"]["hidden"] = max(tables["model"]["hidden"], 8 * tables["model"]["heads"])
    optim = OptimConfig(
        **({"schedule": "constant", "warmup": 0, "decay": "coupled", "clip": 0.0} | tables["optim"])
    )
    return dataclasses.replace(
        base,
        model=kind(**tables["model"]),
        optim=optim,
        recipe=RecipeConfig(**tables["recipe"]),
        prepare=PrepareConfig(**tables["prepare"]),
    )


_USUAL = {
    "model.residual": False,
    "model.heads": 1,
    "model.input_dropout": 0.0,
    "recipe.sharpening": 0.0,
    "model.label_input": False,
}


def _recipes(traits: Traits) -> list[tuple[str, str, Params]]:
    def settings(width: int, layers: int, drop: float, rate: float, decay: float, **more: Any):
        named = {f"model.{name}": value for name, value in more.items()}
        common = {"model.hidden": width, "model.layers": layers, "model.dropout": drop}
        return common | {"optim.learning_rate": rate, "optim.weight_decay": decay} | named

    grand = {
        "recipe.consistency": 1.0,
        "recipe.consistency_passes": 4,
        "recipe.consistency_temperature": 0.5,
    }
    small = {
        "recipe.consistency": 0.7,
        "recipe.consistency_passes": 2,
        "recipe.consistency_temperature": 0.3,
    }
    plain = ("a plain GCN", "gcn", settings(64, 2, 0.5, 1e-2, 5e-4, norm="none"))
    if traits.heterophilous:
        return [
            ("tuned GCN, deep", "gcn", settings(64, 12, 0.2, 1e-2, 0, norm="batch", residual=True)),
            (
                "tuned SAGE, deep",
                "sage",
                settings(64, 8, 0.2, 1e-2, 0, norm="batch", residual=True),
            ),
            ("Polynormer", "polynormer", settings(64, 10, 0.3, 1e-3, 0, heads=8, global_layers=2)),
            ("tuned GAT, deep", "gat", settings(64, 8, 0.2, 1e-2, 0, norm="batch", residual=True)),
            plain,
        ]
    if traits.few_labels:
        return [
            plain,
            ("GRAND", "grand", settings(32, 8, 0.5, 1e-2, 5e-4, feature_dropout=0.5) | grand),
            (
                "GRAND, near",
                "grand",
                settings(32, 2, 0.2, 1e-2, 5e-4, feature_dropout=0.0) | small,
            ),
            (
                "GCN with sharpening",
                "gcn",
                settings(256, 2, 0.7, 1e-3, 5e-4, norm="none") | {"recipe.sharpening": 1.3},
            ),
            ("as APPNP", "decoupled", settings(64, 10, 0.5, 1e-2, 5e-4, restart=0.1, norm="none")),
            ("GAT", "gat", settings(64, 2, 0.6, 5e-3, 5e-4, heads=8, norm="none")),
        ]
    return [
        ("tuned SAGE", "sage", settings(64, 6, 0.2, 1e-3, 5e-5, norm="layer", residual=True)),
        ("tuned GAT", "gat", settings(64, 2, 0.5, 1e-3, 5e-5, norm="layer")),
        plain,
        (
            "tuned SAGE, wide",
            "sage",
            settings(512, 2, 0.5, 1e-3, 5e-4, norm="layer", residual=True),
        ),
        ("tuned GCN", "gcn", settings(256, 3, 0.5, 1e-3, 5e-5, norm="layer")),
        ("tuned GCN, wide", "gcn", settings(512, 5, 0.5, 3e-4, 5e-4, norm="batch", residual=True)),
        ("Polynormer", "polynormer", settings(128, 7, 0.7, 1e-3, 5e-5, heads=8, global_layers=2)),
    ]


def _widths(traits: Traits) -> tuple[int, ...]:
    most = 512 if traits.size < LARGE else 256 if traits.size < 10 * LARGE else 128
    return tuple(width for width in (32, 64, 128, 256, 512) if width <= most)


def _nearest(wanted: Params, able: Choices) -> Params:
    """What is wanted, or what comes closest to it, of every setting there is a choice of."""

    def pick(name: str, values: tuple[Any, ...]) -> Any:
        value = wanted.get(name, values[0])
        if value in values or not isinstance(value, int | float) or isinstance(value, bool):
            return value if value in values else values[0]
        return min(values, key=lambda each: abs(each - value))

    return {name: pick(name, values) for name, values in able.items()}


def _exists(name: str, fields: set[str]) -> bool:
    table, _, key = name.partition(".")
    return table != "model" or key in fields

"""Settings by their flat names, such as "model.hidden", and which of them somebody chose."""

from __future__ import annotations

from typing import Any

from gtjax.core.errors import UserError
from gtjax.nn.models import DEFAULT, model_name
from gtjax.runs.config import TrainConfig, to_mapping, with_model


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[prefix + name] = value
    return found


def chosen_settings(config: TrainConfig) -> dict[str, Any]:
    """Those that are not what the model of this config has by default."""
    plain = TrainConfig()
    try:
        usual = flat(to_mapping(with_model(plain, model_name(config.model))))
    except UserError:  # a model of one's own that has no defaults
        usual = {n: v for n, v in flat(to_mapping(plain)).items() if not n.startswith("model.")}
    usual["model.name"] = DEFAULT
    return changed_settings(usual, flat(to_mapping(config)))


def changed_settings(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Flat settings of `after` that are new, or other than before."""
    return {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }

"""A config as a TOML file that `gtjax train --config` reads: what is not as it is by default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gtjax.nn.models import model_name
from gtjax.runs.config import TrainConfig
from gtjax.runs.settings import chosen_settings

LEFT_OUT = ("out", "data")


def write_config(path: Path, config: TrainConfig, comment: str = "") -> None:
    """Write the settings that differ from the defaults, the name of the model, and the data."""
    settings = {n: v for n, v in chosen_settings(config).items() if n not in LEFT_OUT}
    settings |= {"data": config.data, "model.name": model_name(config.model)}
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        if value is not None:
            tables.setdefault(table, {})[key] = value
    lines = [f"# {line}" for line in comment.splitlines()]
    for table, values in tables.items():
        lines += ["", f"[{table}]"] if table else []
        # A JSON string, number or boolean is one of TOML too.
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

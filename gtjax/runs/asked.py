"""What a run was asked for: when, by which command, and which settings were chosen.

Kept in `asked.json` from the start on, so that it is known of a run that never ends, and told by
the report apart from what the planner decided.
"""

from __future__ import annotations

import time
from typing import Any

from gtjax.runs.config import TrainConfig, to_mapping
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.settings import changed_settings, chosen_settings, flat

FILE = "asked.json"


def note_start(folder: RunFolder, config: TrainConfig, command: str | None) -> None:
    """Of a new run; `config` is as the user gave it."""
    folder.write_json(FILE, _now(command) | {"settings": chosen_settings(config), "resumed": []})


def note_resumption(folder: RunFolder, config: TrainConfig, command: str | None) -> None:
    """Of a run whose config is still stored as it was before; what differs now was asked for."""
    known = folder.read_json(FILE)
    if known is None:  # of a run from before there was such a file
        known = {"date": None, "command": None, "resumed": []}
        known["settings"] = chosen_settings(config)
    stored = flat(folder.read_json("config.json"))
    known["settings"] |= changed_settings(stored, flat(to_mapping(config)))
    known["resumed"] = [*known["resumed"], _now(command)]
    folder.write_json(FILE, known)


def _now(command: str | None) -> dict[str, Any]:
    return {"date": time.strftime("%Y-%m-%d %H:%M:%S"), "command": command}

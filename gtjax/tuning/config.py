"""What `gtjax tune` is asked for; free of jax, so that `--help` is instant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gtjax.core.errors import UserError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class TuneConfig:
    """How long to look for a model, and how."""

    budget: str = "30m"
    """Time for all of it, the final training included: 90s, 30m, 2h."""
    split: int | str = 0
    """Which of the data set's splits, or "random:60/20/20", as of gtjax train."""
    task: str = "auto"
    """"node" (classification) or "node_regression"; "auto" is what the labels say."""
    metric: str = "auto"
    """What is validated, such as accuracy, roc_auc or mae; "auto" is what suits the task."""
    out: Path | None = None
    """Folder; by default a new one under runs/. That of a tuning which was stopped goes on with it,
    for what is left of the budget."""
    models: str = "auto"
    """Models to choose from, such as "gcn,sage"; "auto" takes those that suit the graph."""
    ensemble: int | None = None
    """Seeds that the chosen settings are trained with at the end: metrics are their mean, and
    predictions their mean prediction. By default as many as there is time for, up to 5."""
    trials: int | None = None
    """End the search after so many trials, also if there is time left."""
    jobs: int | None = None
    """Trials side by side, each in a process with its share of the cores; by default one a core on
    small graphs, and one with all cores on large ones."""
    seed: int = 0
    """Of the search, and the first of every trial."""

    def __post_init__(self) -> None:
        seconds_of(self.budget)
        for name in ("ensemble", "trials", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is at least 1; found {value}")


def seconds_of(budget: str) -> float:
    """90s, 30m or 2h in seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", budget)
    if not found or float(found[1]) <= 0:
        raise UserError(f"--budget is a time such as 90s, 30m or 2h; found {budget!r}")
    return float(found[1]) * UNITS[found[2]]

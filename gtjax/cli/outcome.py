"""What training prints at its end, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan

import jax

from gtjax.cli.processes import is_first
from gtjax.core.progress import say
from gtjax.distributed.exits import FINISHED, LOST
from gtjax.distributed.team import LostError
from gtjax.runs.loop import Interrupted
from gtjax.runs.result import Result


def report_outcome(train: Callable[[], Result]) -> int:
    """Train, and say what came of it and where it is; of several processes, the first does."""
    try:
        result = train()
    except Interrupted as stopped:
        if is_first():
            say(str(stopped))
        return FINISHED
    except LostError as lost:
        say(f"gtjax: process {jax.process_index()}: {lost}")
        return LOST
    if is_first():
        print_metrics(result.values)
        print(f"report: {result.shown}/report.html")
    return FINISHED


def _deviation(values: dict[str, float], name: str) -> str:
    """What follows the mean over several seeds."""
    known = values.get(f"{name}_deviation")
    return "" if known is None else f" ± {known:.4f}"


def print_metrics(values: dict[str, float]) -> None:
    """One line for each metric, train, val and test beside each other."""
    lines = []
    metrics = [name.removeprefix("val_") for name in values if name.startswith("val_")]
    for metric in (name for name in metrics if not name.endswith("_deviation")):
        for kind in ("", "ensemble_"):
            found = [
                f"{split} {value:.4f}{_deviation(values, name)}"
                for split in ("train", "val", "test")
                if not isnan(value := values.get(name := f"{kind}{split}_{metric}", nan))
            ]
            if found:
                of = " of the mean of all seeds" if kind else ""
                lines.append(f"{metric}{of}: {', '.join(found)}")
    print("\n".join(lines) or "no metrics: no labelled train, val or test nodes")

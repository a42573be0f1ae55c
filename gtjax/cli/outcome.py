"""What training prints at its end, however it ends."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan

from gtjax.training.loop import Interrupted, Result
from gtjax.training.progress import say


def report_outcome(train: Callable[[], Result]) -> int:
    """Train, and say what came of it and where it is."""
    try:
        result = train()
    except Interrupted as stopped:
        say(str(stopped))
        return 0
    print_metrics(result.values)
    print(f"report: {result.folder / 'report.html'}")
    return 0


def print_metrics(values: dict[str, float]) -> None:
    """One line for each metric, train, val and test beside each other."""
    lines = []
    for metric in ("accuracy", "roc_auc"):
        found = [
            f"{split} {value:.4f}"
            for split in ("train", "val", "test")
            if not isnan(value := values.get(f"{split}_{metric}", nan))
        ]
        if found:
            lines.append(f"{metric}: {', '.join(found)}")
    print("\n".join(lines) or "no metrics: no labelled train, val or test nodes")

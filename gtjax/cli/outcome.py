"""What training prints at its end, however it ends."""

from __future__ import annotations

from collections.abc import Callable

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
    print(f"report: {result.folder / 'report.html'}")  # noqa: T201
    return 0


def print_metrics(values: dict[str, float]) -> None:
    """One line for each metric, train, val and test beside each other."""
    for metric in ("accuracy", "roc_auc"):
        found = [
            f"{split} {values[f'{split}_{metric}']:.4f}"
            for split in ("train", "val", "test")
            if values.get(f"{split}_{metric}") == values.get(f"{split}_{metric}", float("nan"))
        ]
        if found:
            print(f"{metric}: {', '.join(found)}")  # noqa: T201

"""The curves of several runs in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.runs.run_folder import RunFolder

_INK = "#7f8791"  # reads on white and on black


def save_curves(runs: Sequence[str | Path], names: Sequence[str], path: Path) -> None:
    """Training loss and validated metric over the steps, as .svg or .png."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = [(name, RunFolder.at(run, writes=False)) for run, name in zip(runs, names, strict=True)]
    curves = [(name, folder, rows) for name, folder in shown if (rows := folder.metrics())]
    if not curves:
        raise UserError("--picture draws steps that were taken; none of these runs has any yet")
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}
    with rc_context(style | dict.fromkeys(inks, _INK)):
        figure = Figure(figsize=(9, 3.6), layout="constrained", facecolor="none")
        losses, metrics = figure.subplots(1, 2)
        for name, folder, rows in curves:
            losses.plot([row["step"] for row in rows], [row["loss"] for row in rows], lw=1)
            task = (folder.read_json("data.json") or {}).get("task", {})
            _metric(metrics, rows, task.get("metric"), name)
        losses.set(xlabel="step", ylabel="training loss", yscale="log")
        metrics.set(xlabel="step", ylabel="validated metric")
        metrics.legend(frameon=False, fontsize=8)
        for axes in (losses, metrics):
            axes.patch.set_visible(False)
            axes.spines[["top", "right"]].set_visible(False)
        try:
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
            )
        except OSError as error:
            raise UserError(f"cannot write the picture {path}: {error.strerror}.") from error


def _metric(axes: Any, rows: list[dict[str, Any]], metric: str | None, name: str) -> None:
    seen = [row for row in rows if row.get(f"val_{metric}") is not None]
    values = [row[f"val_{metric}"] for row in seen]
    # A dollar begins a formula, and names with a first underscore are left out of legends.
    label = f"{name} ({metric})".replace("$", r"\$").lstrip("_")
    axes.plot([row["step"] for row in seen], values, lw=1.2, label=label)

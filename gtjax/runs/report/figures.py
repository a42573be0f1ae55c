"""The pictures of any run: curves over its steps, degrees of its graph."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from gtjax.planner.explain import draw_plan
from gtjax.runs.report.drawing import ACCENT, SECOND, SOFT, drawn, drawn_figure
from gtjax.runs.report.page import beside, figure
from gtjax.runs.report.text import words

Rows = list[dict[str, Any]]
Points = list[tuple[int, float]]
MOST_POINTS = 1500  # of a curve
FEW_POINTS = 30  # that are marked one by one


def curves(rows: Rows, metric: str, best_step: int) -> str:
    """Loss, and the metric on validation and test nodes, over the steps."""
    losses, size = _thinned([(r["step"], r["loss"]) for r in rows if r.get("loss") is not None])
    if not losses:
        return ""
    each = "at each step" if size == 1 else f"as means of {size} steps"
    held = _seen(rows, "val_loss")
    also = " Val: the same loss of what is validated, without dropout." if held else ""
    return beside(
        figure(
            drawn("losses", lambda axes: _losses(axes, losses, held, best_step)),
            f"Training loss {each}; the dotted line is the step whose parameters were kept.{also}",
        ),
        figure(
            drawn("metrics", lambda axes: _metrics(axes, rows, metric, best_step)),
            f"Validation and test {words(metric)} each time it was measured; kept were the "
            f"parameters that were best on val, at step {best_step:,}.",
        ),
    )


def degrees(histogram: list[tuple[int, int]]) -> str:
    """How many nodes have how many in-edges."""

    def draw(axes: Any) -> None:
        labels = [str(low) if low < 2 else f"{low}-{2 * low - 1}" for low, _ in histogram]
        axes.bar(range(len(labels)), [count for _, count in histogram], color=ACCENT)
        axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
        axes.set(xlabel="in-degree", ylabel="nodes", yscale="log")

    return figure(drawn("degrees", draw), "Nodes by the number of edges that end in them.")


def candidates(plan: dict[str, Any]) -> str:
    """Predicted time and memory of what the planner compared."""

    def draw(on: Any) -> None:
        times, memory = on.subplots(1, 2, sharey=True)
        draw_plan(times, memory, plan)

    return figure(
        drawn_figure("candidates", draw, 9.2, 3.8),
        "Predicted, not measured: seconds a step and memory of the fastest ways of each kind.",
        wide=True,
    )


def _losses(axes: Any, losses: Points, held: Points, best_step: int) -> None:
    axes.plot(*zip(*losses, strict=True), lw=1.3, color=SOFT, label="train")
    if held:
        _marked(axes, held, ACCENT, "val")
        axes.legend(frameon=False)
    axes.axvline(best_step, color=SOFT, lw=1, ls=":")
    positive = all(loss > 0 for _, loss in losses + held)
    axes.set(xlabel="step", ylabel="loss", yscale="log" if positive else "linear")
    axes.xaxis.get_major_locator().set_params(integer=True)
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(lambda value, _: f"{value:.4g}")


def _metrics(axes: Any, rows: Rows, metric: str, best_step: int) -> None:
    for split, colour in (("val", ACCENT), ("test", SECOND)):
        if seen := _seen(rows, f"{split}_{metric}"):
            _marked(axes, seen, colour, split)
    axes.axvline(best_step, color=SOFT, lw=1, ls=":", label="best on val")
    axes.set(xlabel="step", ylabel=words(metric))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)


def _marked(axes: Any, points: Points, colour: str, label: str) -> None:
    dots = "." if len(points) < FEW_POINTS else ""
    axes.plot(*zip(*points, strict=True), lw=1.4, color=colour, marker=dots, label=label)


def _seen(rows: Rows, name: str) -> Points:
    """What was measured now and then."""
    return _thinned([(row["step"], row[name]) for row in rows if row.get(name) is not None])[0]


def _thinned(points: Points) -> tuple[Points, int]:
    """Means of as many neighbours as it takes to leave no more than a picture shows."""
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return points, 1
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(each[-1][0], fmean(value for _, value in each)) for each in groups], size

"""The report of a run: one HTML file with pictures inside, to open anywhere or to mail."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from typing import Any

from gtjax.planner.explain import draw_plan
from gtjax.training.facts import GraphFacts
from gtjax.training.run_folder import RunFolder

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; color: #222;
        padding: 0 1rem; }}
 table {{ border-collapse: collapse; margin: .5rem 0 1.5rem; }}
 td, th {{ padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top;
          border-bottom: 1px solid #eee; }}
 td:last-child {{ font-variant-numeric: tabular-nums; }}
 .pictures {{ display: flex; flex-wrap: wrap; gap: 1rem; }} svg {{ max-width: 100%; height: auto; }}
 pre {{ background: #f6f6f6; padding: 1rem; overflow-x: auto; }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def write_report(
    folder: RunFolder, facts: GraphFacts, result: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    """Write `report.html` into the run's folder."""
    figures = facts.figures
    shown = {
        name: value
        for name, value in figures.items()
        if not isinstance(value, list | dict) and value is not None
    }
    shown.update({f"{name} nodes": size for name, size in figures["splits"].items()})
    measured = [
        f"{split}_{metric}"
        for metric in ("accuracy", "roc_auc")
        for split in ("train", "val", "test")
    ]
    outcome = {
        name: result[name] for name in (*measured, *_OUTCOME) if result.get(name) is not None
    }
    body = [
        "<h2>Result</h2>",
        _exactness(result),
        _table(outcome),
        "<div class=pictures>",
        _picture(lambda axes: _losses(axes, rows)),
        _picture(lambda axes: _metrics(axes, rows, result)),
        "</div>",
        *_plan(result, folder.read_json("plan.json")),
        "<h2>Graph</h2><div class=pictures>",
        _table(shown),
        _picture(lambda axes: _degrees(axes, figures["degree_histogram"])),
        "</div><h2>Settings</h2>",
        _table(_flat(result["config"])),
        "<h2>Versions</h2>",
        _table(result["versions"]),
    ]
    title = html.escape(f"gtjax: {facts.name}")
    folder.write_text("report.html", _PAGE.format(title=title, body="\n".join(body)))


_COVERAGE = ("mean", "min", "max")
_OUTCOME = (
    "best_step",
    "steps",
    "seconds_per_step",
    "seconds_per_draw",
    "peak_bytes_per_device",
    "strategy",
    "mesh",
    "device",
)


def _exactness(result: dict[str, Any]) -> str:
    """In plain words, that and how much training left out, if it did."""
    if not result["approximate"]:
        return ""
    mean, least, most = (f"{100 * result['coverage'][name]:.0f} %" for name in _COVERAGE)
    return (
        f"<p>Training was approximate: it left out the edges between parts of the graph. Labelled "
        f"training nodes saw {mean} of their neighbourhoods on average, between {least} and {most} "
        f"from part to part. All metrics here are those of the whole graph.</p>"
    )


def _plan(result: dict[str, Any], plan: dict[str, Any] | None) -> list[str]:
    """What the planner promised, what was seen, and what else could have been done."""
    if plan is None or "plan" not in result:
        return []
    seen = {name: value for name, value in result["plan"].items() if value not in (None, {})}
    seen.pop("why", None)
    return [
        "<h2>Plan</h2>",
        f"<p>{html.escape(plan['why'])}</p>",
        _table(seen),
        _wide_picture(lambda left, right: draw_plan(left, right, plan)),
    ]


def _table(values: dict[str, Any]) -> str:
    rows = (
        f"<tr><td>{html.escape(str(name).replace('_', ' '))}</td>"
        f"<td>{html.escape(_text(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return str(value)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _picture(draw: Callable[[Any], None]) -> str:
    def on(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)

    return _svg(on, 4.6, 2.9)


def _wide_picture(draw: Callable[[Any, Any], None]) -> str:
    return _svg(lambda figure: draw(*figure.subplots(1, 2, sharey=True)), 9.2, 3.8)


def _svg(draw: Callable[[Any], None], width: float, height: float) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return re.sub(r"^.*?(?=<svg)", "", file.getvalue(), flags=re.DOTALL)


def _losses(axes: Any, rows: list[dict[str, Any]]) -> None:
    axes.plot([row["step"] for row in rows], [row["loss"] for row in rows], lw=1)
    axes.set(xlabel="step", ylabel="training loss", yscale="log")


def _metrics(axes: Any, rows: list[dict[str, Any]], result: dict[str, Any]) -> None:
    for split in ("val", "test"):
        name = f"{split}_{result['metric']}"
        seen = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        if seen:
            axes.plot(*zip(*seen, strict=True), lw=1.2, label=split)
    axes.axvline(result["best_step"], color="#888", lw=0.8, ls=":", label="best on val")
    axes.set(xlabel="step", ylabel=result["metric"].replace("_", " "))
    axes.legend(frameon=False)


def _degrees(axes: Any, histogram: list[tuple[int, int]]) -> None:
    labels = [str(low) if low < 2 else f"{low}-{2 * low - 1}" for low, _ in histogram]
    axes.bar(range(len(labels)), [count for _, count in histogram], color="#4878a8")
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right")
    axes.set(xlabel="in-degree", ylabel="nodes", yscale="log")

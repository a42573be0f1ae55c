"""The results as bars, on a logarithmic scale, grouped by graph: time above, memory below.

The ground is transparent and every colour is of middle brightness, so that it reads on white and on
black pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contenders.comparison import CONTENDERS

_INK = "#7f8791"
_COLOURS = {
    "cpu": "#2a9d5c",
    "cpu-1": "#7cc49a",
    "cpu-ordered": "#1f7a8c",
    "cpu-bf16": "#4dc2b5",
    "xla": "#3f8fd2",
    "segment": "#b08cd9",
    "dgl": "#e09f3e",
    "pyg": "#d9635b",
    "gather": "#8d99a6",
}


def draw(results: dict[str, Any], path: Path) -> None:
    """Write the picture as SVG; the same results give the same bytes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}
    style |= {f"{part}.color": _INK for part in ("text", "xtick", "ytick")}
    style |= {"axes.labelcolor": _INK, "axes.edgecolor": _INK}
    with rc_context(style):
        figure = Figure(figsize=(8, 5.4), layout="constrained", facecolor="none")
        above, below = figure.subplots(2, 1, sharex=True)
        _bars(above, results, _seconds)
        above.set_ylabel("forward + backward (or step), s")
        _bars(below, results, _megabytes)
        below.set_ylabel("peak memory above start, MB")
        handles, labels = above.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
        with path.open("w", encoding="utf-8") as file:
            FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})


def _bars(axes: Any, results: dict[str, Any], value_of: Any) -> None:
    graphs = {n: g["contenders"] for n, g in results["graphs"].items() if g.get("contenders")}
    names = [name for name in CONTENDERS if any(name in found for found in graphs.values())]
    width = 0.85 / max(1, len(names))
    for number, name in enumerate(names):
        offset = (number - (len(names) - 1) / 2) * width
        values = [value_of(name, found.get(name)) for found in graphs.values()]
        points = [(at + offset, value) for at, value in enumerate(values) if value]
        places, heights = zip(*points, strict=True) if points else ((), ())
        label = CONTENDERS[name].title
        bars = axes.bar(places, heights, width * 0.92, color=_COLOURS[name], label=label)
        texts = [f"{height:.2g}" if height < 100 else f"{height:.0f}" for height in heights]
        axes.bar_label(bars, texts, fontsize=6, padding=1, rotation=90)
    axes.set_xticks(range(len(graphs)), [name.replace(", ", ",\n") for name in graphs])
    axes.set_yscale("log")
    axes.margins(y=0.25)
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_INK, alpha=0.25, lw=0.5)
    axes.set_axisbelow(True)


def _seconds(name: str, record: dict[str, Any] | None) -> float | None:
    if record is None:
        return None
    times = record["median_seconds"]
    return times.get("both", times.get("step"))


def _megabytes(name: str, record: dict[str, Any] | None) -> float | None:
    if record is None or name == "gather" or record["peak"]["bytes"] is None:
        return None
    return record["peak"]["bytes"] / 1e6

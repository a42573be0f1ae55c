"""All trials as a table, for people and for other programs, and as a picture."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from gtjax.tuning import study as studies

FIRST = ("study", "trial", "called", "state", "model", "val", "deviation", "seeds", "steps")
INK = "#7f8791"  # reads on white and on black


def rows_of(study: Any, name: str) -> list[dict[str, Any]]:
    """A row a trial that came to something, in the order in which they began."""
    rows = []
    for trial in studies.ended(study):
        outcome, settings = studies.outcome_of(trial), dict(studies.settings_of(trial))
        rows.append(
            {
                "study": name,
                "trial": trial.user_attrs.get("of", trial.number),
                "called": trial.user_attrs.get(studies.CALLED, ""),
                "state": "stopped" if outcome["stopped"] else "finished",
                "model": settings.pop("model"),
                "val": outcome["metric"],
                "deviation": outcome["deviation"],
                "seeds": len(outcome["each"]),
                "steps": outcome["steps"],
                "seconds": round(outcome["seconds"], 2),
                "ended": trial.datetime_complete.timestamp(),
                **settings,
            }
        )
    return sorted(rows, key=lambda row: row["ended"])


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """As .csv."""
    names = dict.fromkeys([*FIRST, *(name for row in rows for name in row)])
    part = path.with_name(f".{path.name}.part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(names), restval="")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def told(rows: list[dict[str, Any]], baselines: list[dict[str, Any]], smaller: bool) -> str:
    """The finalists, the best of the search, and what they are held against, best first."""
    finals = [row for row in rows if row["study"] == studies.FINALISTS]
    known = {row["trial"] for row in finals}
    search = [row for row in rows if row["study"] == studies.SEARCH and row["trial"] not in known]
    sign = 1 if smaller else -1
    best = sorted(search, key=lambda row: sign * row["val"])[:5]
    lines = []
    for row in [*sorted(finals, key=lambda row: sign * row["val"]), *best]:
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.4f}"
        settings = ", ".join(
            f"{name.rpartition('.')[2]} {value}"
            for name, value in row.items()
            if "." in name and value not in ("", False, 0.0)
        )
        seeds = f"{row['seeds']} seed{'s' * (row['seeds'] > 1)}"
        lines.append(f"  val {row['val']:.4f}{spread} ({seeds}) {row['model']}: {settings}")
    lines += [f"  val {each['val']:.4f} {each['name']}" for each in baselines]
    return "\n".join(lines)


def draw(
    path: Path,
    rows: list[dict[str, Any]],
    baselines: list[dict[str, Any]],
    metric: str,
    smaller: bool,
) -> None:
    """Validation of trials as they ended, the best so far, and what they are held against."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {"svg.hashsalt": "gtjax", "svg.fonttype": "none", "font.size": 9}
    rows = [row for row in rows if row["val"] - row["val"] == 0]
    if not rows:
        return
    with rc_context(style | dict.fromkeys(inks, INK)):
        figure = Figure(figsize=(8, 3.8), layout="constrained", facecolor="none")
        axes = figure.subplots()
        start = min(row["ended"] - row["seconds"] for row in rows)
        minutes = [(row["ended"] - start) / 60 for row in rows]
        for model in dict.fromkeys(row["model"] for row in rows):
            own = [(m, row) for m, row in zip(minutes, rows, strict=True) if row["model"] == model]
            sizes = [30 if row["state"] == "finished" else 8 for _, row in own]
            axes.scatter([m for m, _ in own], [row["val"] for _, row in own], s=sizes, label=model)
        best, so_far = [], None
        for row in rows:
            better = so_far is None or (row["val"] < so_far) == smaller
            so_far = row["val"] if better else so_far
            best.append(so_far)
        axes.step(minutes, best, where="post", lw=1, color=INK, label="best so far")
        for each, line in zip(baselines, ("--", ":"), strict=False):
            axes.axhline(each["val"], lw=1, ls=line, color=INK, label=each["name"])
        values = sorted(row["val"] for row in rows)
        middle = values[len(values) // 4] if not smaller else values[-1 - len(values) // 4]
        shown = [*best, middle, *(each["val"] for each in baselines)]
        room = 0.1 * (max(shown) - min(shown)) or 0.01
        axes.set_ylim(min(shown) - room, max(shown) + room)
        axes.set(xlabel="minutes", ylabel=f"validation {metric}")
        axes.legend(frameon=False, fontsize=8, loc="best")
        axes.patch.set_visible(False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})

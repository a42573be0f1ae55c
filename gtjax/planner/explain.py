"""A plan for people: a table of all candidates, the decisive sentence, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtjax.planner.plan import Candidate, Plan

SHOWN = 12  # candidates, unless all are asked for


def explain(plan: Plan, *, everything: bool = False) -> str:
    """The plan as text: the choice, why, and what each other candidate would cost."""
    from rich.console import Console

    console = Console(width=140, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table_of(plan, everything=everything))
    lines = [captured.get().rstrip(), ""]
    hidden = len(plan.candidates) - len(_shown(plan, everything))
    if hidden:
        lines.append(f"{hidden} more that are slower or do not fit: --all shows them.")
    return "\n".join([*lines, *notes(plan)])


def notes(plan: Plan) -> list[str]:
    """What the table does not say."""
    found = [plan.flip] if plan.flip else []
    if plan.chosen is not None:
        found.append(
            f"kernel {plan.kernel}; a device may use {plan.memory_bytes / 2**30:.3g} GiB; "
            f"hardware: {plan.hardware.name}, {plan.hardware.source}"
        )
    if plan.hardware.preset:
        found.append("The hardware is a preset from published figures: nothing was measured.")
    if plan.supposed and plan.chosen is not None:
        found.append(
            "The cut is supposed, not counted: seconds in brackets are for the fewest and the most "
            "rows that such a cut can mean; what a kernel reaches of published figures adds to it."
        )
    return found


def table_of(plan: Plan, *, everything: bool = False) -> Any:
    """The candidates, the cheapest first."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, side in _COLUMNS:
        table.add_column(name, justify=side, no_wrap=name != "not taken because")
    for each in _shown(plan, everything):
        style = "bold" if each is plan.chosen or not each.reason else None
        table.add_row(*_cells(each), style=style)
    return table


_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("strategy", "left"),
    ("mesh", "left"),
    ("parts", "left"),
    ("remat", "left"),
    ("s/step", "right"),
    ("of it moving", "right"),
    ("MB received", "right"),
    ("GiB a device", "right"),
    ("not taken because", "left"),
)


def _shown(plan: Plan, everything: bool) -> list[Candidate]:
    """All, or the best of each strategy on each mesh, as far as there is room."""
    if everything:
        return list(plan.candidates)
    best: dict[tuple[str, Any], Candidate] = {}
    for each in plan.candidates:
        key = (each.option.name, each.option.mesh)
        known = best.get(key)
        fits = each.price is not None and plan.fits(each.price)
        if known is None or (fits and not (known.price is not None and plan.fits(known.price))):
            best[key] = each
    return list(best.values())[:SHOWN]


def _cells(each: Candidate) -> list[str]:
    option = each.option
    mesh = f"{option.mesh.node} x {option.mesh.feature}"
    parts = option.partitioner if option.mesh.node > 1 else "-"
    cells = [option.name, mesh, parts, option.remat]
    if each.price is None:
        return [*cells, "", "", "", "", each.reason]
    seconds = f"{each.price.seconds:.3g}"
    if each.low is not None and each.high is not None:
        seconds += f" ({each.low:.2g}-{each.high:.2g})"
    return [
        *cells,
        seconds,
        f"{100 * each.price.communication / each.price.seconds:.0f} %",
        f"{each.price.moved_bytes / 1e6:,.1f}",
        f"{each.price.peak_bytes / 2**30:.3g}",
        each.reason or "chosen",
    ]


def draw_plan(axes: Any, memory_axes: Any, plan: dict[str, Any], most: int = 10) -> None:
    """Bars of predicted time, split in compute and communication, and of memory with its limit.

    `plan` is what `Plan.to_json` gives.
    """
    best: dict[str, dict[str, Any]] = {}
    for each in plan["candidates"]:
        if "seconds" in each:
            mesh = each["mesh"]
            best.setdefault(f"{each['name']}\n{mesh['node']} x {mesh['feature']}", each)
    shown = list(best.items())[:most][::-1]
    names = [name for name, _ in shown]
    moving = [each["communication"] for _, each in shown]
    compute = [each["seconds"] - each["communication"] for _, each in shown]
    axes.barh(names, compute, color="#4878a8", label="compute")
    axes.barh(names, moving, left=compute, color="#d9813b", label="communication")
    axes.set(xlabel="predicted seconds a step")
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    axes.tick_params(axis="y", labelsize=7)
    memory_axes.barh(names, [each["peak_bytes"] / 2**30 for _, each in shown], color="#8a8a8a")
    memory_axes.axvline(plan["memory_bytes"] / 2**30, color="#b03030", lw=1)
    memory_axes.set(xlabel="GiB a device (line: what it has)")
    memory_axes.tick_params(axis="y", labelleft=False)
    for each in (axes, memory_axes):
        each.spines[["top", "right"]].set_visible(False)


def save_picture(plan: Plan, path: Path) -> None:
    """The bars as a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    draw_plan(left, right, plan.to_json())
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)

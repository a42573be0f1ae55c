"""A plan for people: a table of all candidates, the decisive sentence, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gtjax.planner.one_device import slower_than_one
from gtjax.planner.plan import Candidate, Plan

SHOWN = 12  # candidates, unless all are asked for
WIDTH = 140  # of text that is for no terminal in particular
REASON_WIDTH = 36  # below which a column of reasons is hard to read


def explain(plan: Plan, *, everything: bool = False) -> str:
    """The plan as text: the choice, why, and what each other candidate would cost."""
    from rich.console import Console

    console = Console(width=WIDTH, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(candidates_of(plan, WIDTH, everything=everything))
    lines = [captured.get().rstrip(), ""]
    return "\n".join([*lines, *notes(plan, everything=everything)])


def notes(plan: Plan, *, everything: bool = False) -> list[str]:
    """What the table does not say."""
    hidden = len(plan.candidates) - len(_shown(plan, everything))
    found = [f"{hidden} more candidates: --all shows them."] if hidden else []
    found += [plan.flip] if plan.flip else []
    if plan.chosen is not None:
        found.append(
            f"kernel {plan.kernel}; a device may use {plan.memory_bytes / 2**30:.3g} GiB; "
            f"hardware: {plan.hardware.name}, {plan.hardware.source}"
        )
    if remark := slower_than_one(plan.to_json(), plan.devices, processes=1):
        found.append(remark)
    if plan.hardware.preset:
        found.append("The hardware is a preset from published figures: nothing was measured.")
    if plan.supposed and plan.chosen is not None:
        found.append(
            "The cut is supposed, not counted: seconds in brackets are for the fewest and the most "
            "rows that such a cut can mean; what a kernel reaches of published figures adds to it."
        )
    return found


def candidates_of(plan: Plan, width: int | None, *, everything: bool = False) -> Any:
    """The candidates, the cheapest first, within so many columns.

    A table where there is room for the reasons in it, else a few lines for each. Without a width,
    as for a program that reads it, a line for each, however long.
    """
    shown = _shown(plan, everything)
    rows = [_cells(each) for each in shown]
    styles = ["bold" if each is plan.chosen or not each.reason else "" for each in shown]
    titles = [max(title.split("\n"), key=len) for title, _ in _COLUMNS]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    left = None if width is None else width - sum(widths[:-1]) - GAP * (len(widths) - 1)
    if left is not None and left < min(REASON_WIDTH, widths[-1]):
        return _blocks(rows, styles)
    return _table(rows, styles, widths[-1] if left is None else left)


def _table(rows: list[list[str]], styles: list[str], reason_width: int) -> Any:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for title, side in _COLUMNS[:-1]:
        table.add_column(title, justify=side, no_wrap=True)
    table.add_column(_COLUMNS[-1][0], max_width=reason_width, overflow="fold")
    for cells, style in zip(rows, styles, strict=True):
        table.add_row(*cells, style=style)
    return table


def _blocks(rows: list[list[str]], styles: list[str]) -> Any:
    """What it is, what it costs, and why it was not taken, each on a line of its own."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines: list[Any] = []
    for cells, style in zip(rows, styles, strict=True):
        name, mesh, parts, remat, seconds, moving, received, memory, reason = cells
        lines.append(Text(f"{name} on {mesh}, parts {parts}, remat {remat}", style))
        if seconds:
            cost = f"{seconds} s/step, {moving} of it moving, {received} MB received, "
            lines.append(Padding(Text(f"{cost}{memory} GiB a device", style), (0, 0, 0, 2)))
        why = reason if reason == CHOSEN else f"not taken because: {reason}"
        lines.append(Padding(Text(why, style), (0, 0, 0, 2)))
    return Group(*lines)


CHOSEN = "chosen"
GAP = 2  # blanks between columns
_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("strategy", "left"),
    ("mesh", "left"),
    ("parts", "left"),
    ("remat", "left"),
    ("s/step", "right"),
    ("of it\nmoving", "right"),
    ("MB\nreceived", "right"),
    ("GiB a\ndevice", "right"),
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
        each.reason or CHOSEN,
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

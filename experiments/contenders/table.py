"""The results as Markdown: one block of rows a graph, one column a contender."""

from __future__ import annotations

from typing import Any

from contenders.comparison import CONTENDERS, OURS
from contenders.kinds import OP_KINDS, moved_over_gathered

WORDS = {"forward": "forward, s", "both": "forward + backward, s", "step": "one step, s"}
BOUND = "gather"  # a floor and not a rival: it gets no ratio


def table(results: dict[str, Any]) -> str:
    """Medians, with how many times ours they are in brackets, and why what is missing is."""
    graphs = results.get("graphs", {})
    shown = [n for n in CONTENDERS if any(n in g.get("contenders", {}) for g in graphs.values())]
    titles = [CONTENDERS[name].title for name in shown]
    lines = ["| " + " | ".join(["graph", "", *titles]) + " |", "|---" * (len(shown) + 2) + "|"]
    reasons: dict[str, list[str]] = {}
    for graph, result in graphs.items():
        lines += _rows(graph, result, shown)
        for name, reason in result.get("absent", {}).items():
            title = CONTENDERS[name].title if name in CONTENDERS else name
            reasons.setdefault(f"{title}: {reason}", []).append(graph)
    notes = [f"- {reason} ({', '.join(on)})" for reason, on in reasons.items()]
    return "\n".join([*lines, *(["", "Not measured:", "", *notes] if notes else [])])


def _rows(graph: str, result: dict[str, Any], shown: list[str]) -> list[str]:
    found = result.get("contenders", {})
    if not found:
        return []
    operations = next(iter(found.values()))["median_seconds"]
    rows = []
    for operation in operations:
        values = {n: record["median_seconds"].get(operation) for n, record in found.items()}
        rows.append((WORDS[operation], values, "{:.3g}"))
    peaks = {n: record["peak"]["bytes"] for n, record in found.items() if n != BOUND}
    megabytes = {name: None if peak is None else peak / 1e6 for name, peak in peaks.items()}
    rows.append(("peak memory, MB", megabytes, "{:.0f}"))
    rows += [
        (f"share of the bound, {one}", {OURS: share}, "{:.2f}")
        for one, share in shares(result).items()
        if one != "both"
    ]
    lines = []
    for number, (word, values, form) in enumerate(rows):
        cells = [cell(name, values, form) for name in shown]
        lines.append("| " + " | ".join(["" if number else graph, word, *cells]) + " |")
    return lines


def shares(result: dict[str, Any]) -> dict[str, float]:
    """How much of our time the memory alone would take, at the rate of the gather bound.

    Beside the rows of the edges, which the bound reads, a pass reads and writes rows of its own
    nodes (attention forward: q, out; backward: q, dout, out, dq, k, v, dk, dv) and indices and, in
    the backward pass, two numbers an edge and head; see `kinds`.
    """
    found = result["contenders"]
    if OURS not in found or BOUND not in found:
        return {}
    ours, bound = (found[name]["median_seconds"] for name in (OURS, BOUND))
    kind = OP_KINDS[result["kind"]]
    sizes = {name: result[name] for name in ("nodes", "edges", "heads", "width")}
    forward = bound["forward"] * moved_over_gathered(kind.forward, **sizes)
    backward = bound["both"] - bound["forward"]
    backward *= moved_over_gathered(kind.backward, **sizes)
    return {
        "forward": forward / ours["forward"],
        "backward": backward / (ours["both"] - ours["forward"]),
        "both": (forward + backward) / ours["both"],
    }


def cell(name: str, values: dict[str, float | None], form: str) -> str:
    """The number of a contender, and how many times ours it is."""
    value, ours = values.get(name), values.get(OURS)
    if value is None:
        return "-"
    text = form.format(value)
    if name in (OURS, BOUND) or not ours:
        return text
    ratio = value / ours
    return f"{text} ({ratio:.2g}x)" if ratio < 1 else f"{text} ({ratio:.{int(ratio < 10)}f}x)"

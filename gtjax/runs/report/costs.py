"""What a run cost: time and memory as measured, and the plan with what it predicted."""

from __future__ import annotations

from typing import Any

from gtjax.runs.report import figures
from gtjax.runs.report.page import bars, beside, folded, pairs, paragraph, section, table
from gtjax.runs.report.text import duration, size

Known = dict[str, Any]


def time(result: Known, planned: Known | None) -> str:
    """Where it went, as measured; what a step is made of, as sampled and as predicted."""
    spent = {what: took for what, took in result["seconds"].items() if took > 0}
    total = sum(spent.values()) or 1.0
    rows = [(what, s, f"{duration(s)}, {100 * s / total:.0f} %") for what, s in spent.items()]
    said = f"Measured: where the {duration(total)} of this run went."
    if result["began_at"]:
        said = (
            f"Measured: where the {duration(total)} went since the run was resumed at step "
            f"{result['began_at']:,}."
        )
    parts = [bars(sorted(rows, key=lambda row: -row[1]), said)]
    if shares := result.get("step_shares"):
        parts.append(_sampled_step(shares, result["seconds_per_step"]))
    if planned is not None and planned.get("chosen"):
        parts.append(_predicted_step(planned["chosen"], result["seconds_per_step"]))
    return section("Where the time went", beside(*parts))


def _sampled_step(shares: Known, seconds: float) -> str:
    names = {
        "edges": "edges",
        "dense": "dense layers",
        "communication": "communication, waiting included",
        "other": "all else: norms, dropout, loss, optimiser",
    }
    rows = [
        (said, shares[name], f"{duration(shares[name] * seconds)}, {100 * shares[name]:.0f} %")
        for name, said in names.items()
        if name in shares
    ]
    said = f"Measured in traces of some steps: what a step of {duration(seconds)} is made of."
    return bars(rows, said)


def _predicted_step(chosen: Known, measured: float) -> str:
    names = {
        "dense": "dense layers",
        "ops": "edges",
        "communication": "communication that nothing hides",
        "memory": "memory that is touched first",
    }
    rows = [(said, chosen[name], duration(chosen[name])) for name, said in names.items()]
    return bars(
        rows,
        f"Predicted by the planner, not measured: what one step of {_way(chosen)} is made of, "
        f"{duration(chosen['seconds'])} in all. Measured were {duration(measured)}.",
        kind="predicted",
    )


def memory(result: Known) -> str:
    """What a step needs and what was in use, against what there is."""
    known, step = result["memory"], result["peak_bytes_per_device"]
    limit = known["limit_bytes"]
    rows = []
    if step:
        share = f", {100 * step / limit:.2g} %" if limit else ""
        rows.append(("a training step, on each device", step, f"{size(step)}{share}"))
    if known["of"] == "device":
        rows.append(("most in use on a device", known["peak_bytes"], size(known["peak_bytes"])))
    if limit:
        rows.append(("what a device has", limit, size(limit)))
    parts = [bars(rows, "A step as the compiler counts it, against the memory of a device.")]
    if known["of"] == "process":
        most = size(known["peak_bytes"])
        said = f"The whole process, with the graph, programs and Python, had {most} at most"
        parts.append(paragraph(f"{said} (measured)."))
    return section("Memory", *parts)


def plan(result: Known, planned: Known | None) -> str:
    """How the graph was spread over devices, and why so."""
    shape = {"strategy": result["strategy"], "mesh": result["mesh"]}
    if planned is None or "plan" not in result:
        if result["strategy"] == "single":
            return section("The plan", paragraph("One device: there was nothing to choose."))
        said = "Nothing was planned: the strategy was given, or steps move no rows."
        return section("The plan", paragraph(said), pairs(shape))
    seen = result["plan"]
    shape["predicted"] = f"{duration(seen['predicted_seconds'])} a step"
    if seen["measured_seconds"] is not None:
        shape["measured"] = (
            f"{duration(seen['measured_seconds'])} a step, {seen['ratio']:.2f} times the prediction"
        )
    shape["predicted memory"] = size(seen["predicted_peak_bytes"])
    shape |= {f"tried: {way}": duration(seconds) for way, seconds in seen["tried"].items()}
    return section(
        "The plan",
        paragraph(planned["why"]),
        pairs(shape),
        figures.candidates(planned),
        folded(f"All {len(planned['candidates'])} candidates", _candidates(planned)),
    )


def _candidates(planned: Known) -> str:
    columns = ("way", "parts", "remat", "a step", "of it moving", "memory", "not taken because")
    rows = []
    for each in planned["candidates"]:
        cells = [_way(each), each["partitioner"], each["remat"]]
        if "seconds" in each:
            moving = 100 * each["communication"] / each["seconds"]
            cells += [duration(each["seconds"]), f"{moving:.0f} %", size(each["peak_bytes"])]
        else:
            cells += ["", "", ""]
        rows.append([*cells, each["reason"] or "chosen"])
    return table(columns, rows)


def _way(each: Known) -> str:
    return f"{each['name']} on {each['mesh']['node']} x {each['mesh']['feature']}"

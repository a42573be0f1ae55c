"""`report.html`: what was asked, what came out, where time and memory went, and why it ran so."""

from __future__ import annotations

from typing import Any

from gtjax.distributed.failures import failures
from gtjax.nn.models import DEFAULT
from gtjax.runs.asked import FILE as ASKED
from gtjax.runs.config import TrainConfig, from_mapping
from gtjax.runs.facts import GraphFacts
from gtjax.runs.report import classification, figures
from gtjax.runs.report.chapter import Chapter
from gtjax.runs.report.costs import memory, plan, time
from gtjax.runs.report.page import (
    beside,
    escaped,
    folded,
    page,
    pairs,
    paragraph,
    section,
    table,
    tiles,
)
from gtjax.runs.report.seen import Seen
from gtjax.runs.report.text import duration, size, text, words
from gtjax.runs.run_folder import RunFolder
from gtjax.runs.settings import chosen_settings, flat
from gtjax.tasks.node import NodeClassification

SPLITS = ("train", "val", "test")
MOST_FAILURES = 50  # of a run, the newest, that are shown


def write_report(
    folder: RunFolder,
    facts: GraphFacts,
    result: dict[str, Any],
    rows: list[dict[str, Any]],
    seen: Seen,
) -> None:
    """Write the report into the run's folder."""
    asked = folder.read_json(ASKED) or {}
    planned = folder.read_json("plan.json")
    about = chapter_of(seen, result)
    body = [
        _opening(facts, result, asked),
        tiles(_figures_that_count(result, about)),
        figures.curves(rows, result["metric"], result["best_step"]),
        beside(
            section("What was asked", *_settings(result, asked)),
            section("What came out", _exactness(result), _metrics(result)),
        ),
        *about.parts,
        _failures(folder),
        time(result, planned),
        memory(result),
        plan(result, planned),
        _graph(facts),
        section("Made with", pairs({"device": result["device"]}), _versions(result)),
    ]
    folder.write_text("report.html", page(f"gtjax: {facts.name}", body))


def chapter_of(seen: Seen, result: dict[str, Any]) -> Chapter:
    """What the task adds; most have nothing beyond metrics and curves."""
    if isinstance(seen.task, NodeClassification) and seen.task.OF == "node":
        return classification.chapter(seen.task, seen, result)
    return Chapter(None, ())


def _opening(facts: GraphFacts, result: dict[str, Any], asked: dict[str, Any]) -> str:
    config = result["config"]
    known = [config["model"].get("name", DEFAULT), f"on {facts.text}"]
    parts = [f"<h1>{escaped(facts.name)}</h1>", paragraph(" ".join(known))]
    times = [asked, *asked.get("resumed", [])]
    dates = [each["date"] for each in times if each.get("date")]
    if dates:
        later = f", resumed {', '.join(dates[1:])}" if dates[1:] else ""
        parts.append(paragraph(f"{dates[0]}{later}", "soft"))
    commands = [each["command"] for each in times if each.get("command")]
    if commands:
        parts.append(f"<pre>{escaped(chr(10).join(commands))}</pre>")
    return f"<header>{''.join(parts)}</header>"


def _figures_that_count(result: dict[str, Any], about: Chapter) -> list[tuple[str, str, str]]:
    """The tiles at the top."""
    metric, found = result["metric"], []
    test, val = (result.get(f"{split}_{metric}") for split in ("test", "val"))
    if _is_number(test):
        sure = ""
        if about.interval is not None:
            low, high, how = about.interval
            sure = f"95 % sure: {low:.4f} to {high:.4f} ({how})"
        if "seeds" in result:
            of_all = result.get(f"ensemble_test_{metric}")
            sure = f"mean ± deviation of {len(result['seeds'])} seeds"
            sure += f"; their mean prediction: {of_all:.4f}" if _is_number(of_all) else ""
        found.append((f"test {words(metric)}", _with_deviation(result, f"test_{metric}"), sure))
    if _is_number(val):
        best = f"best at step {result['best_step']:,} of {result['steps']:,}"
        if "seeds" in result:
            best = f"each at its best of {result['steps']:,} steps"
        found.append((f"val {words(metric)}", _with_deviation(result, f"val_{metric}"), best))
    took = sum(result["seconds"].values())
    step = f"{duration(result['seconds_per_step'])} a step"
    if result["began_at"]:
        step += f"; since step {result['began_at']:,}"
    found.append(("time", duration(took), step))
    if result["peak_bytes_per_device"]:
        limit = result["memory"]["limit_bytes"]
        of = f"a step on a device, of {size(limit)}" if limit else "a step on a device"
        found.append(("memory", size(result["peak_bytes_per_device"]), of))
    return found


def _settings(result: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """What the user chose, what was decided for them, and everything else folded."""
    settings, wanted = flat(result["config"]), asked.get("settings", {})
    unusual = chosen_settings(from_mapping(TrainConfig, result["config"], "config"))
    chosen = {name: settings.get(name, value) for name, value in wanted.items()}
    decided = {name: value for name, value in unusual.items() if name not in chosen}
    rest = {n: v for n, v in settings.items() if n not in chosen and n not in decided}
    return [
        pairs(chosen) or paragraph("Everything as it is by default."),
        paragraph("Decided by the planner, as nobody said:") + pairs(decided) if decided else "",
        folded(f"{len(rest)} settings as they are by default", pairs(rest)),
    ]


def _metrics(result: dict[str, Any]) -> str:
    """Every metric of every split, of the parameters that were kept."""
    found = {
        f"{split} {words(name.removeprefix(f'{split}_'))}": _with_deviation(result, name)
        for split in SPLITS
        for name, value in result.items()
        if name.startswith(f"{split}_") and not name.endswith("_deviation") and _is_number(value)
    }
    kept = f"The parameters after step {result['best_step']:,}, which were best on val, have:"
    if "seeds" in result:
        kept = (
            f"The parameters of {len(result['seeds'])} seeds, each as they were best on val, have "
            "as mean ± deviation (figures by class are those of their mean prediction):"
        )
    return paragraph(kept) + pairs(found) if found else paragraph("No metrics: nothing to measure.")


def _with_deviation(result: dict[str, Any], name: str) -> str:
    """A metric, and over several seeds its deviation."""
    deviation = result.get(f"{name}_deviation")
    return f"{result[name]:.4f}" + (f" ± {deviation:.4f}" if _is_number(deviation) else "")


def _exactness(result: dict[str, Any]) -> str:
    """In plain words, that and how much training left out, if it did."""
    if not result["approximate"]:
        return ""
    said = f"Training was approximate: batching {result['batching']}, wire {result['wire']}."
    if "coverage" in result:
        shares = (100 * result["coverage"][name] for name in ("mean", "min", "max"))
        mean, least, most = (f"{share:.0f} %" for share in shares)
        said += (
            " It left out the edges between parts of the graph. Labelled training nodes saw "
            f"{mean} of their neighbourhoods on average, between {least} and {most} from part to "
            "part. All metrics here are those of the whole graph."
        )
    if "waiting" in result:
        said += (
            f" Steps saw a batch each, {result['epochs']:.1f} epochs in all; devices waited for "
            f"batches {100 * result['waiting']:.0f} % of the time of steps. A batch was larger "
            f"than the shapes that were compiled for {result['shapes_grown']} times: the step was "
            "compiled again then, and nothing left out. All metrics here are of the whole graph."
        )
    if "cache_hit_rate" in result:
        said += (
            f" Of the rows of features, {result['cache_rows']:,.0f} were kept in memory, where "
            f"{100 * result['cache_hit_rate']:.0f} % of what batches asked for was found; "
            f"{size(result['feature_bytes_read'])} were read."
        )
    return paragraph(said)


def _failures(folder: RunFolder) -> str:
    """What the run has survived, if anything."""
    found = failures(folder.path)
    if not found:
        return ""
    said = "The run ended before its time, and went on from its last checkpoint:"
    if len(found) > MOST_FAILURES:
        said = f"The newest {MOST_FAILURES} of {len(found)} failures:"
    rows = [[each[name] for name in ("date", "host", "why", "then")] for each in found]
    columns = ("when", "host", "what happened", "what was done")
    return section("What went wrong", paragraph(said), table(columns, rows[-MOST_FAILURES:]))


def _graph(facts: GraphFacts) -> str:
    known = facts.figures
    shown = {
        words(name): value
        for name, value in known.items()
        if not isinstance(value, list | dict) and value is not None
    }
    shown["in-degree"] = known["degree"]
    shown |= {f"{name} nodes": count for name, count in known["splits"].items()}
    return section("The graph", beside(pairs(shown), figures.degrees(known["degree_histogram"])))


def _versions(result: dict[str, Any]) -> str:
    return folded("Versions", pairs({name: text(v) for name, v in result["versions"].items()}))


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and value - value == 0

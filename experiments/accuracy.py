"""Accuracy on real graphs: trains each stored config over its seeds or splits.

    python experiments/accuracy.py --data FOLDER [--only cora tolokers]

FOLDER holds the graphs as `NAME.npz` (the schema of `gtjax.save_npz`), and `anchor-splits/NAME.npz`
with the one split that others report some of them on. What is reported is the test metric of the
parameters that were best on the validation nodes; how a config was chosen is in its file, and
`trials` says among how many. Runs are kept one by one (`--kept`), so that a stopped case goes on.
Configs and results (`results.json`) are in `experiments/accuracy/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import gtjax
from gtjax.core.user_cache import user_cache

HERE = Path(__file__).parent / "accuracy"
RESULTS = HERE / "results.json"
TUNED, POLYNORMER, GRAND = "Luo et al. 2024", "Deng et al. 2024", "Feng et al. 2020"
KEPT = ("best_step", "steps", "seconds_per_step")


@dataclasses.dataclass(frozen=True)
class Case:
    """A config, the graph it is for, what is repeated, and what others reach."""

    config: str
    graph: str
    vary: str  # "seed" or "split"
    runs: int
    beside: str  # what is published, or reached by something simple on the same data
    trials: int  # settings that were compared on validation, by us
    anchor: bool = False  # on the split of `anchor-splits`


CASES = [
    Case("computers-gat", "amazon-computers", "seed", 5, f"GAT 94.09 ({TUNED})", 1, True),
    Case("photo-sage", "amazon-photo", "seed", 5, f"SAGE 96.78 ({TUNED})", 1, True),
    Case("cs-sage", "coauthor-cs", "seed", 5, f"SAGE 96.38 ({TUNED})", 1, True),
    Case("cora-grand", "cora", "seed", 5, f"GRAND 85.4 ({GRAND})", 1),
    Case("citeseer-grand", "citeseer", "seed", 5, f"GRAND 75.4 ({GRAND})", 2),
    Case("minesweeper-gcn", "minesweeper", "split", 10, f"GCN 97.86, first 3 splits ({TUNED})", 3),
    Case("arxiv-sage", "ogbn-arxiv", "seed", 5, "linear on propagated features 62.9", 1),
    Case("arxiv-sage-labels", "ogbn-arxiv", "seed", 5, "label propagation 67.7", 1),
    Case("wordnet-typed", "wordnet-synsets", "split", 5, "", 1),
    Case("wordnet-untyped", "wordnet-synsets", "split", 5, "", 1),
    Case("cora", "cora", "seed", 10, "", 60),
    Case("amazon-computers", "amazon-computers", "split", 5, "", 5),
    Case("tolokers", "tolokers", "split", 10, f"85.91 ({POLYNORMER})", 5),
]


def load(case: Case, data: Path, split: int | str) -> gtjax.Graph:
    """The graph, with the split that is asked for."""
    graph = gtjax.load(data / f"{case.graph}.npz", split=split)
    if not case.anchor:
        return graph
    with np.load(data / "anchor-splits" / f"{case.graph}.npz", allow_pickle=False) as anchor:
        masks = {name: anchor[f"{name}_mask"][:, 0] for name in ("train", "val", "test")}
    return dataclasses.replace(graph, split_n=masks)


def run_once(case: Case, data: Path, number: int) -> dict[str, Any]:
    """Train one seed or split of a case."""
    config = gtjax.read_config(HERE / f"{case.config}.toml")
    config = dataclasses.replace(config, **{case.vary: number}, data=case.graph)
    graph, started = load(case, data, config.split), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(config, out=Path(folder) / "run")
        result = gtjax.fit(graph, config=config, show_progress=False)
    metric = result["metric"]
    if metric == "cross_entropy":  # chooses the step, and is not what is reported
        metric = "accuracy"
    names = [f"{name}_{metric}" for name in ("train", "val", "test")]
    if config.smooth.method != "none":
        names += [f"{name}_smoothed_{metric}" for name in ("val", "test")]
    known = {name: result[name] for name in (*names, *KEPT)}
    return {
        "run": {case.vary: number, **known, "seconds": time.monotonic() - started},
        "metric": metric,
        **{name: result[name] for name in ("kernels", "device", "versions")},
        "config": result["config"] | {"out": None},
    }


def run_case(case: Case, data: Path, kept: Path) -> dict[str, Any]:
    """Train every seed or split of a case, but for those that are kept."""
    settings = (HERE / f"{case.config}.toml").read_text(encoding="utf-8")
    results = []
    for number in range(case.runs):
        path = kept / f"{case.config}-{number}.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if known.get("settings") != settings:
            known = {"settings": settings, "result": run_once(case, data, number)}
            kept.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(known) + "\n", encoding="utf-8")
        results.append(known["result"])
        run = results[-1]["run"]
        print(case.config, {name: round(value, 4) for name, value in run.items()}, flush=True)
    first, runs = results[0], [result["run"] for result in results]
    metric, smoothed = first["metric"], {}
    if f"test_smoothed_{metric}" in runs[0]:
        smoothed = {"smoothed": spread(runs, f"smoothed_{metric}")}
    return {
        "graph": case.graph,
        "split": "anchor" if case.anchor else "given",
        "metric": metric,
        **spread(runs, metric),
        **smoothed,
        "trials": case.trials,
        "beside": case.beside,
        "runs": runs,
        **{name: first[name] for name in ("kernels", "device", "versions", "config")},
        "command": f"python experiments/accuracy.py --data FOLDER --only {case.config}",
    }


def spread(runs: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Mean and deviation of a test metric, and the mean on validation."""
    tests, vals = ([run[f"{name}_{metric}"] for run in runs] for name in ("test", "val"))
    return {
        "mean": statistics.fmean(tests),
        "deviation": statistics.stdev(tests) if len(tests) > 1 else None,
        "val": statistics.fmean(vals),
    }


def stored() -> dict[str, Any]:
    """The results so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "| config | graph | metric | test, mean | val | runs | min. a run | beside it | trials |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, result in results.items():
        minutes = statistics.median(run["seconds"] for run in result["runs"]) / 60
        split = ", anchor split" if result["split"] == "anchor" else ""
        of_case = f"{result['graph']}{split} | {result['metric']}"
        shown = [(f"`{name}`", result)]
        if "smoothed" in result:
            shown.append((f"`{name}`, Correct & Smooth after it", result["smoothed"]))
        for called, found in shown:
            around = f" ± {100 * found['deviation']:.1f}" if found["deviation"] is not None else ""
            val = f"{100 * found['val']:.1f}" if "val" in found else ""
            lines.append(
                f"| {called} | {of_case} | {100 * found['mean']:.1f}{around} | {val} | "
                f"{len(result['runs'])} | {minutes:.1f} | {result['beside']} | {result['trials']} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and store each result as soon as it is there."""
    parser = argparse.ArgumentParser(description="Accuracy on real graphs.")
    parser.add_argument("--data", type=Path, help="folder with the graphs")
    names = [case.config for case in CASES]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    kept = user_cache() / "experiments" / "accuracy"
    parser.add_argument("--kept", type=Path, default=kept, help="where finished runs are kept")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("--data FOLDER says where the graphs are")
    for case in CASES:
        if case.config in arguments.only:
            new = {case.config: run_case(case, arguments.data, arguments.kept)}
            results = stored() | new  # read again: another case may have ended meanwhile
            ordered = {name: results[name] for name in names if name in results}
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    print(table(stored()))


if __name__ == "__main__":
    main()

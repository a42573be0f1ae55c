"""Accuracy on real graphs: trains each stored config over its seeds or splits.

    python experiments/accuracy.py --data FOLDER [--only cora tolokers]

FOLDER holds the graphs as `NAME.npz` (the schema of `gtjax.save_npz`). The configs and the results
(`results.json`) are in `experiments/accuracy/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import gtjax

HERE = Path(__file__).parent / "accuracy"
RESULTS = HERE / "results.json"


@dataclasses.dataclass(frozen=True)
class Case:
    """A config, the graph it is for, and what is repeated."""

    config: str
    graph: str
    vary: str  # "seed" or "split"
    runs: int


CASES = [
    Case("cora", "cora", "seed", 10),
    Case("amazon-computers", "amazon-computers", "split", 5),
    Case("tolokers", "tolokers", "split", 10),
    Case("ogbn-arxiv-labels", "ogbn-arxiv", "seed", 1),
    Case("ogbn-arxiv", "ogbn-arxiv", "seed", 1),
]


def run_once(case: Case, data: Path, number: int) -> gtjax.Result:
    """Train one seed or split of a case."""
    config = gtjax.read_config(HERE / f"{case.config}.toml")
    config = dataclasses.replace(config, **{case.vary: number}, data=case.graph)
    graph = gtjax.load(data / f"{case.graph}.npz", split=config.split)
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(config, out=Path(folder) / "run")
        result = gtjax.fit(graph, config=config, show_progress=False)
    metric = result["metric"]
    shown = {name: round(result[f"{name}_{metric}"], 4) for name in ("train", "val", "test")}
    print(case.config, case.vary, number, metric, shown, flush=True)
    return result


def run_case(case: Case, data: Path) -> dict[str, Any]:
    """Train every seed or split of a case."""
    results = [run_once(case, data, number) for number in range(case.runs)]
    first = results[0]
    metric = first["metric"]
    tests = [result[f"test_{metric}"] for result in results]
    kept = [f"{name}_{metric}" for name in ("train", "val", "test")]
    kept += ["best_step", "steps", "seconds_per_step"]
    return {
        "graph": case.graph,
        "metric": metric,
        "mean": statistics.fmean(tests),
        "deviation": statistics.stdev(tests) if len(tests) > 1 else None,
        "runs": [
            {case.vary: number} | {name: result[name] for name in kept}
            for number, result in enumerate(results)
        ],
        **{name: first[name] for name in ("peak_bytes_per_device", "kernel", "device", "versions")},
        "config": first["config"] | {"out": None},
        "command": f"python experiments/accuracy.py --data FOLDER --only {case.config}",
    }


def stored() -> dict[str, Any]:
    """The results so far."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| config | graph | metric | test, mean | runs | s/step |"]
    lines.append("|---|---|---|---|---|---|")
    for name, result in results.items():
        spread = f" ± {100 * result['deviation']:.1f}" if result["deviation"] is not None else ""
        pace = statistics.median(run["seconds_per_step"] for run in result["runs"])
        lines.append(
            f"| `{name}` | {result['graph']} | {result['metric']} | {100 * result['mean']:.1f}"
            f"{spread} | {len(result['runs'])} | {pace:.2g} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and store each result as soon as it is there."""
    parser = argparse.ArgumentParser(description="Accuracy on real graphs.")
    parser.add_argument("--data", type=Path, help="folder with the graphs")
    names = [case.config for case in CASES]
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("--data FOLDER says where the graphs are")
    for case in CASES:
        if case.config in arguments.only:
            new = {case.config: run_case(case, arguments.data)}
            results = stored() | new  # read again: another case may have ended meanwhile
            ordered = {name: results[name] for name in names if name in results}
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    print(table(stored()))


if __name__ == "__main__":
    main()

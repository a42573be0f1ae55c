"""`gtjax tune` for half an hour a graph, without hints, beside what is published for them.

    python experiments/tuning.py --data FOLDER [--only cora] [--budget 30m] [--jobs 2]

What is chosen is chosen by validation alone, and the test metric is looked at once, by `gtjax tune`
itself. FOLDER is that of `accuracy.py`. Folders of tunings are kept (`--kept`), so that one which
was stopped goes on, and a finished one is not repeated. Results are in `experiments/tuning/`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import accuracy

import gtjax
from gtjax.core.user_cache import user_cache

RESULTS = Path(__file__).parent / "tuning" / "results.json"
# The case whose graph and split it is, the metric, and the test metric that is wanted.
WANTED = {
    "amazon-photo": ("photo-sage", "accuracy", 0.968),
    "minesweeper": ("minesweeper-gcn", "roc_auc", 0.979),
    "cora": ("cora-grand", "accuracy", 0.854),
    "citeseer": ("citeseer-grand", "accuracy", 0.754),
}
KEPT = ("metric", "model", "settings", "validation", "validation_deviation", "validation_seeds")
COUNTED = ("trials", "trials_stopped_early", "seconds", "budget", "jobs", "baselines", "versions")


def measured(name: str, data: Path, kept: Path, budget: str, jobs: int | None) -> dict[str, Any]:
    """One tuning, or what one that is finished has given."""
    config, metric, wanted = WANTED[name]
    (case,) = (each for each in accuracy.CASES if each.config == config)
    graph = accuracy.load(case, data, 0)
    tuning = gtjax.TuneConfig(budget=budget, jobs=jobs, metric=metric, out=kept / name)
    result = gtjax.tune(graph, config=tuning)
    found = {each: result[each] for each in (*KEPT, *COUNTED)}
    found |= {"wanted": wanted, "split": "anchor" if case.anchor else "first"}
    for prefix in ("test", "ensemble_test"):
        found[prefix] = result.values.get(f"{prefix}_{metric}")
    found["test_deviation"] = result.values.get(f"test_{metric}_deviation")
    return found


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| graph | metric | test, mean of seeds | their mean prediction | published | model |"]
    lines[0] += " trials | min. | side by side | simple models, test |"
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for name, each in results.items():
        spread = f" ± {100 * each['test_deviation']:.1f}" if each["test_deviation"] else ""
        together = f"{100 * each['ensemble_test']:.1f}" if each["ensemble_test"] else "-"
        simple = ", ".join(f"{one['name']} {100 * one['test']:.1f}" for one in each["baselines"])
        lines.append(
            f"| {name}, {each['split']} split | {each['metric']} | {100 * each['test']:.1f}{spread}"
            f" | {together} | {100 * each['wanted']:.1f} | {each['model']} | {each['trials']} | "
            f"{each['seconds'] / 60:.0f} | {each['jobs']} | {simple} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Tune for what is asked for, and store each result as soon as it is there."""
    parser = argparse.ArgumentParser(description="gtjax tune, half an hour a graph.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the graphs")
    parser.add_argument("--only", nargs="*", choices=tuple(WANTED), default=tuple(WANTED))
    parser.add_argument("--budget", default="30m")
    parser.add_argument("--jobs", type=int, help="trials side by side; by default one a core")
    kept = user_cache() / "experiments" / "tuning"
    parser.add_argument("--kept", type=Path, default=kept, help="where tunings are kept")
    given = parser.parse_args()
    ordered: dict[str, Any] = {}
    for name in given.only:
        found = measured(name, given.data, given.kept, given.budget, given.jobs)
        # Read now: others may have ended meanwhile.
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        known[name] = found
        ordered = {each: known[each] for each in WANTED if each in known}
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    print(table(ordered))


if __name__ == "__main__":
    main()

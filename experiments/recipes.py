"""What the training recipes gain, over runs with the same number of gradient evaluations without.

    python experiments/recipes.py --data FOLDER [--only cora] [--seeds 5]

A GCN of two layers on three graphs. FLAG and consistency take several gradients a step, so each is
compared with a GCN that takes as many more steps; sharpening and Correct & Smooth take no more than
the plain run, and are compared with that. Weights of recipes are chosen on validation, among three
each, by the same seeds; the parameters of a run are those that were best on validation. Differences
are of pairs with the same seed. Results are in `experiments/recipes/results.json`.
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

import gtjax

RESULTS = Path(__file__).parent / "recipes" / "results.json"
GRAPHS = ("cora", "citeseer", "amazon-photo")
STEPS = 200
OPTIM = gtjax.OptimConfig(
    learning_rate=1e-2, schedule="constant", warmup=0, clip=0.0, decay="coupled", weight_decay=5e-4
)
PLAIN = gtjax.TrainConfig(steps=STEPS, eval_every=5, optim=OPTIM)
# A recipe's name, the gradients that a step takes, and the weights to choose from.
RECIPES: dict[str, tuple[int, list[gtjax.RecipeConfig]]] = {
    "FLAG": (3, [gtjax.RecipeConfig(flag_steps=3, flag_size=size) for size in (1e-3, 1e-2, 1e-1)]),
    "GRAND's consistency": (
        2,
        [
            gtjax.RecipeConfig(consistency=weight, consistency_passes=2)
            for weight in (0.3, 1.0, 3.0)
        ],
    ),
    "sharpening": (1, [gtjax.RecipeConfig(sharpening=weight) for weight in (0.03, 0.1, 0.3)]),
}
SMOOTH = gtjax.SmoothConfig(method="correct_and_smooth", choose=True)


def run(graph: gtjax.Graph, seeds: int, **changes: Any) -> dict[str, Any]:
    """Metrics of each seed, of a GCN with these settings."""
    model = gtjax.GCNConfig(hidden=64, layers=2, dropout=0.5)
    config = dataclasses.replace(PLAIN, model=model, seeds=seeds, **changes)
    with tempfile.TemporaryDirectory() as folder:
        config = dataclasses.replace(config, out=Path(folder) / "run")
        result = gtjax.fit(graph, config=config, show_progress=False)
    runs = result["seeds"]
    return {"val": result["val_accuracy"], "test": [each["test_accuracy"] for each in runs]}


def smoothed(graph: gtjax.Graph, seeds: int) -> list[float]:
    """Test accuracy of each seed after Correct & Smooth."""
    model = gtjax.GCNConfig(hidden=64, layers=2, dropout=0.5)
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            config = dataclasses.replace(
                PLAIN, model=model, seed=seed, smooth=SMOOTH, out=Path(folder) / "run"
            )
            result = gtjax.fit(graph, config=config, show_progress=False)
        found.append(result["test_smoothed_accuracy"])
    return found


def measured(graph: gtjax.Graph, seeds: int) -> dict[str, Any]:
    """Every recipe on one graph, beside what it is compared with."""
    plain: dict[int, list[float]] = {}
    found: dict[str, Any] = {}

    def without(gradients: int) -> list[float]:
        if gradients not in plain:
            plain[gradients] = run(graph, seeds, steps=STEPS * gradients)["test"]
        return plain[gradients]

    for name, (gradients, candidates) in RECIPES.items():
        tried = [run(graph, seeds, recipe=each) for each in candidates]
        best = max(range(len(tried)), key=lambda number: tried[number]["val"])
        found[name] = {
            "gradients": gradients,
            "recipe": dataclasses.asdict(candidates[best]),
            "val": [each["val"] for each in tried],
            "test": tried[best]["test"],
            "without": without(gradients),
        }
        print(graph.name, name, found[name], flush=True)
    found["Correct & Smooth"] = {
        "gradients": 1,
        "test": smoothed(graph, seeds),
        "without": without(1),
    }
    print(graph.name, found["Correct & Smooth"], flush=True)
    return found


def table(results: dict[str, Any]) -> str:
    """The gains, in points, with the deviation over pairs of seeds."""
    lines = ["| graph | recipe | without | with | gain |", "|---|---|---|---|---|"]
    for graph, found in results["graphs"].items():
        for name, each in found.items():
            gains = [100 * (a - b) for a, b in zip(each["test"], each["without"], strict=True)]
            before, after = (100 * statistics.fmean(each[key]) for key in ("without", "test"))
            gain, deviation = statistics.fmean(gains), statistics.stdev(gains)
            times = f" ({each['gradients']}x the steps)" if each["gradients"] > 1 else ""
            lines.append(
                f"| {graph} | {name} | {before:.1f}{times} | {after:.1f} | "
                f"{gain:+.1f} ± {deviation:.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and store each graph as soon as it is there."""
    parser = argparse.ArgumentParser(description="What the training recipes gain.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the graphs")
    parser.add_argument("--only", nargs="*", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    known: dict[str, Any] = {"graphs": {}, "seconds": {}}
    if RESULTS.exists():
        known = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in given.only:
        start, graph = time.monotonic(), gtjax.load(given.data / f"{name}.npz")
        known["graphs"][name] = measured(graph, given.seeds)
        known |= {"steps": STEPS, "seeds": given.seeds}
        known["seconds"][name] = time.monotonic() - start
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print(table(known))


if __name__ == "__main__":
    main()

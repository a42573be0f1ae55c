"""Five seeds in one program against five runs, from the command line and a step alone.

    python experiments/seeds.py --data FOLDER [--rounds 3]

FOLDER holds `cora.npz`. Both ways are started in turn, so that what else the machine does falls on
both; wall time is that of the commands, all of them, start of Python and report included. Results
are in `experiments/seeds/results.json`, with the load of the machine at the start of every round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gtjax

RESULTS = Path(__file__).parent / "seeds" / "results.json"
SEEDS = 5
START = "import sys; from gtjax.cli.main import main; sys.exit(main())"
OPTIONS = {
    "gcn": ["--model.hidden", "64", "--model.layers", "2", "--model.dropout", "0.5"],
    "gat": ["--model.hidden", "64", "--model.layers", "2", "--model.heads", "8"],
}


def train(data: Path, out: Path, *options: str) -> tuple[float, dict[str, Any]]:
    """Seconds of one command, and its result."""
    command = [sys.executable, "-c", START, "train", "--data", str(data)]
    start = time.monotonic()
    subprocess.run([*command, "--out", str(out), *options], check=True, capture_output=True)
    return time.monotonic() - start, json.loads((out / "result.json").read_text())


def one_round(data: Path, model: str, steps: int) -> dict[str, Any]:
    """Five runs, and one run of five."""
    options = ["--model", model, "--steps", str(steps), "--eval-every", "10", *OPTIONS[model]]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        took, together = train(data, out / "all", *options, "--seeds", str(SEEDS))
        runs = [
            train(data, out / str(seed), *options, "--seed", str(seed)) for seed in range(SEEDS)
        ]
    apart = [result for _, result in runs]
    metrics = [[each["test_accuracy"] for each in found] for found in (together["seeds"], apart)]
    return {
        "load_before": load,
        "seconds_together": took,
        "seconds_apart": sum(seconds for seconds, _ in runs),
        "step_together": together["seconds_per_step"],
        "step_apart": sum(each["seconds_per_step"] for each in apart),
        "test_accuracy_together": metrics[0],
        "test_accuracy_apart": metrics[1],
    }


def table(results: dict[str, Any]) -> str:
    """Ratios of medians."""
    lines = [
        "| model | five runs, s | one program, s | ratio | five steps, ms | one step, ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, rounds in results["models"].items():
        mid = {
            name: statistics.median(each[name] for each in rounds)
            for name in ("seconds_apart", "seconds_together", "step_apart", "step_together")
        }
        whole = (mid["seconds_apart"], mid["seconds_together"])
        step = (1e3 * mid["step_apart"], 1e3 * mid["step_together"])
        lines.append(
            f"| `{model}` | {whole[0]:.0f} | {whole[1]:.0f} | {whole[0] / whole[1]:.1f} "
            f"| {step[0]:.1f} | {step[1]:.1f} | {step[0] / step[1]:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description="Five seeds in one program against five runs.")
    parser.add_argument("--data", type=Path, required=True, help="folder with cora.npz")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--models", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    given = parser.parse_args()
    data = given.data.resolve() / "cora.npz"
    models = {
        model: [one_round(data, model, given.steps) for _ in range(given.rounds)]
        for model in given.models
    }
    results = {
        "graph": gtjax.load(data).name,
        "steps": given.steps,
        "seeds": SEEDS,
        "cores": os.cpu_count(),
        "models": models,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()

"""One core against two: threads of one process, and two processes with a core each.

    python experiments/threads.py --data FOLDER [--rounds 3] [--steps 12]

Trains the default model on FOLDER/ogbn-arxiv.npz, by `gtjax train` on one core, on two, and by
`gtjax launch --processes 2`, in turns; a step's seconds are the median of those that a run reports
after its first two turns. Two processes exchange rows by gloo, over the loopback address. Results
are in `experiments/threads/results.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "threads" / "results.json"
COMMAND = "import sys; from gtjax.cli.main import main; sys.exit(main(sys.argv[1:]))"
PACKAGES = ("gtjax", "jax", "jaxlib")
WAYS = {
    "1 thread": ((), 1),
    "2 threads": ((), 2),
    "2 processes": (("launch", "--processes", "2", "--"), 2),
}


def step_seconds(way: str, data: Path, steps: int) -> float:
    """Of a step, as the rows of metrics have it."""
    before, cores = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [*before, "train", "--data", str(data), "--steps", str(steps)]
        words += ["--eval-every", str(steps), "--out", str(out)]
        allowed = sorted(os.sched_getaffinity(0))[:cores]
        subprocess.run(
            [sys.executable, "-c", COMMAND, *words],
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
            stdout=subprocess.DEVNULL,
        )
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return statistics.median(row["seconds_per_step"] for row in rows[2:] if "loss" in row)


def table(result: dict[str, Any]) -> str:
    """Seconds of a step, and how many times as fast as on one core."""
    lines = ["| default model on ogbn-arxiv | seconds a step | faster |", "|---|---|---|"]
    for way, seconds in result["medians"].items():
        lines.append(f"| {way} | {seconds:.2f} | {result['faster'][way]:.2f}x |")
    return "\n".join(lines)


def main() -> None:
    """All ways in turn, so often."""
    parser = argparse.ArgumentParser(description="One core against two.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the graph")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    load = [os.getloadavg()[0]]
    for _ in range(given.rounds):
        for way, times in found.items():
            times.append(step_seconds(way, given.data / "ogbn-arxiv.npz", given.steps))
            print(way, f"{times[-1]:.3f} s a step", flush=True)
    load.append(os.getloadavg()[0])
    medians = {way: statistics.median(times) for way, times in found.items()}
    one = medians["1 thread"]
    result: dict[str, Any] = {
        "step_seconds": found,
        "medians": medians,
        "faster": {way: one / seconds for way, seconds in medians.items()},
        "load": load,
        "python": platform.python_version(),
        "versions": {each: importlib.metadata.version(each) for each in PACKAGES},
        "command": f"python experiments/threads.py --data FOLDER --rounds {given.rounds}",
    }
    print(result["faster"])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Is attention slower than it was? Forward and backward in two trees of sources, in turns.

    python experiments/before_after.py --before FOLDER --after FOLDER [--rounds 15]

Each folder holds `pallas_kernels` with its native library built. Each runs in a process of its own
on the same graph and numbers (dot-product attention, 8 heads of 16, an R-MAT graph of the size of
ogbn-arxiv), must compute the same, and is timed in turns; whoever begins a round ends the next.
Prints medians and ratios after / before: of the medians, and the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from contenders.case import TOLERANCE
from contenders.graphs import PROBLEMS, write_case
from contenders.process import Worker

OPERATIONS = ("forward", "both")


def measure(folder: Path, trees: dict[str, Path], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds by operation and tree, a list of rounds."""
    workers: dict[str, Worker] = {}
    try:
        for name, tree in trees.items():
            workers[name] = Worker("tree", Path(sys.executable), folder, sources=tree)
        for name, worker in workers.items():
            sources = Path(worker.ready()["sources"])
            if not sources.is_relative_to(trees[name].resolve()):
                sys.exit(f"{name} took {sources}, which is not in {trees[name]}")
        workers["before"].ask("store reference")
        for array, distance in workers["after"].ask("check")["distances"].items():
            if not distance <= TOLERANCE:
                sys.exit(f"the trees do not compute the same: {array} is off by {distance:.3g}")
        seconds = {operation: {name: [] for name in workers} for operation in OPERATIONS}
        for number in range(rounds):
            names = list(workers) if number % 2 else list(workers)[::-1]
            for operation in OPERATIONS:
                for name in names:
                    took = workers[name].ask("time", operation)["seconds"]
                    seconds[operation][name].append(took)
        return seconds
    finally:
        for worker in workers.values():
            worker.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Attention before and after a change.")
    parser.add_argument("--before", type=Path, required=True, help="tree of sources")
    parser.add_argument("--after", type=Path, required=True, help="tree of sources")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="smoke run: a tiny graph")
    arguments = parser.parse_args()
    trees = {"before": arguments.before, "after": arguments.after}
    for name, tree in trees.items():
        if not (tree / "pallas_kernels").is_dir():
            parser.error(f"--{name} is a folder that holds pallas_kernels; found {tree}")
    with tempfile.TemporaryDirectory() as folder:
        write_case(PROBLEMS["arxiv-like"], Path(folder), None, small=arguments.quick)
        seconds = measure(Path(folder), trees, arguments.rounds)
    for operation, of in seconds.items():
        before, after = (statistics.median(of[name]) for name in ("before", "after"))
        pairs = zip(of["before"], of["after"], strict=True)
        by_round = statistics.median(b / a for a, b in pairs)
        print(
            f"{operation}: before {before:.4g} s, after {after:.4g} s, after / before: "
            f"{after / before:.3f} of medians, {by_round:.3f} median of rounds, "
            f"{min(of['after']) / min(of['before']):.3f} of the fastest"
        )


if __name__ == "__main__":
    main()

"""Seconds of a training step with features as an array against the same without their zeros.

    python experiments/sparse_features.py --data FOLDER [--rounds 7]

Both are compiled, must give the same losses, and then take steps in turns, in one process; whoever
begins a round ends the next. The last case has features that "auto" leaves dense. Results are in
`experiments/sparse_features/results.json`; `--quick` is a smoke run on a drawn graph.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from attention import machine

import gtjax
from gtjax.batching.config import PrepareConfig
from gtjax.batching.prepare import make_batch
from gtjax.nn.config import GCNConfig, SAGEConfig
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program

HERE = Path(__file__).parent / "sparse_features"
WIDE: dict[str, Any] = {"hidden": 512, "layers": 2}
CASES: dict[str, tuple[str, str, Any]] = {
    "cora": ("cora.npz", "GCN 512 x 2", GCNConfig(**WIDE)),
    "cora, dropout": ("cora.npz", "GCN 512 x 2", GCNConfig(**WIDE, input_dropout=0.5)),
    "citeseer, dropout": ("citeseer.npz", "GCN 512 x 2", GCNConfig(**WIDE, input_dropout=0.5)),
    "coauthor-cs": ("coauthor-cs.npz", "SAGE 512 x 2, residual", SAGEConfig(**WIDE, residual=True)),
    "amazon-photo": ("amazon-photo.npz", "GCN 64 x 2", GCNConfig(hidden=64, layers=2)),
}
STEPS = 4  # compared before anything is timed
TOLERANCE = 2e-5


class Contender:
    """A step that is compiled, and the state that it is at."""

    def __init__(self, graph: gtjax.Graph, config: TrainConfig):
        program = Program(config, graph, config.task_of(graph))
        self.batch = make_batch(graph, program.settings, program.spread)
        self.state = program.initial_state()
        self.run = program.compiled(self.state, self.batch, STEPS)
        memory = self.run.memory_analysis()
        self.bytes = memory.argument_size_in_bytes + memory.temp_size_in_bytes

    def steps(self, count: int) -> np.ndarray:
        """Losses of so many more steps."""
        self.state, losses = self.run(self.state, self.batch, np.int32(count))
        return np.asarray(jax.block_until_ready(losses))[:count]

    def seconds(self, count: int) -> float:
        """Of a step, over so many."""
        started = time.perf_counter()
        self.steps(count)
        return (time.perf_counter() - started) / count


def measure(graph: gtjax.Graph, model: Any, rounds: int, count: int) -> dict[str, Any]:
    """Seconds of a step by round, bytes, and what the features are."""
    config = TrainConfig(model=model, steps=1000)
    ways = {"dense": PrepareConfig(sparse="never"), "sparse": PrepareConfig(sparse="always")}
    both = {name: Contender(graph, replace(config, prepare=way)) for name, way in ways.items()}
    dense, sparse = (each.steps(STEPS) for each in both.values())
    np.testing.assert_allclose(sparse, dense, rtol=TOLERANCE, atol=TOLERANCE)
    seconds: dict[str, list[float]] = {name: [] for name in both}
    loads = []
    for number in range(rounds):
        loads.append(os.getloadavg()[0])
        for name in list(both) if number % 2 else list(both)[::-1]:
            seconds[name].append(both[name].seconds(count))
    return {
        "nodes": graph.num_nodes,
        "channels": graph.num_features,
        "filled": float(np.count_nonzero(graph.x_nf) / graph.x_nf.size),
        "seconds": seconds,
        "bytes": {name: each.bytes for name, each in both.items()},
        "load_average": loads,
    }


def drawn() -> gtjax.Graph:
    """Bags of words for a smoke run."""
    rng = np.random.default_rng(0)
    graph = gtjax.load("synthetic-citation:nodes=200")
    words = (rng.random((graph.num_nodes, 300)) < 0.02).astype(np.float32)
    return replace(graph, x_nf=words)


def table(results: dict[str, Any]) -> str:
    """As in the README."""
    lines = [
        "| graph | features | filled | model | array, s/step | sparse, s/step | times as fast "
        "| array, MB | sparse, MB | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results["cases"].items():
        times = {who: statistics.median(each) for who, each in found["seconds"].items()}
        size = {who: f"{each / 1e6:.0f}" for who, each in found["bytes"].items()}
        lines.append(
            f"| {name} | {found['nodes']:,} x {found['channels']:,} "
            f"| {100 * found['filled']:.1f} % | {found['model']} "
            f"| {times['dense']:.3g} | {times['sparse']:.3g} "
            f"| {times['dense'] / times['sparse']:.1f} | {size['dense']} | {size['sparse']} "
            f"| {statistics.median(found['load_average']):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and store it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="smoke run: a tiny graph")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    arguments = parser.parse_args()
    path = arguments.out / "results.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cases": {}}
    results["machine"] = machine()
    if arguments.quick:
        small = GCNConfig(hidden=8, layers=1, input_dropout=0.5)
        results["cases"]["drawn"] = {"model": "GCN 8 x 1", **measure(drawn(), small, 2, 1)}
        print(table(results))
        return
    for name in arguments.only:
        file, model, config = CASES[name]
        if arguments.data is None or not (arguments.data / file).exists():
            print(f"{name}: absent: --data FOLDER says where the real graphs are")
            continue
        graph = gtjax.load(arguments.data / file)
        count = 1 if graph.x_nf.nbytes > 1e8 else STEPS
        results["cases"][name] = {"model": model} | measure(graph, config, arguments.rounds, count)
        arguments.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()

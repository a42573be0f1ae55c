"""Partitioners on real graphs: what they cut, how they balance, what they cost.

    python experiments/partition.py --data FOLDER

FOLDER holds `web-cnr-2000.npz` and `ogbn-arxiv.npz` (the schema of `gtjax.save_npz`). Both are made
symmetric with self-loops, as for training, and the web graph's nodes are shuffled, since their
order gives the answer away. Every partitioner runs in a process of its own; its peak memory is the
growth of the resident set while it runs, the graph not counted; what METIS's own process held at
most is added.
Results are in `experiments/partition/results.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from contenders.memory import peak_above_start

import gtjax
from gtjax.graph import GENERATORS

HERE = Path(__file__).parent / "partition"
GRAPHS = {"web-cnr-2000": True, "ogbn-arxiv": False}  # whether the nodes are shuffled
HOWS = ("metis", "streaming", "contiguous", "random")
PARTS = 8
SEEDS = 3


def load(name: str, data: Path | None, *, quick: bool) -> gtjax.Graph:
    """A graph as training sees it; a small generated one in its place for a smoke run."""
    if quick:
        graph = GENERATORS["synthetic-citation"](nodes=2003, mean_degree=8.0, features=1)
    else:
        assert data is not None
        graph = gtjax.load(data / f"{name}.npz")
    graph = graph.symmetrised().with_self_loops()
    if GRAPHS[name]:
        graph = graph.reordered(np.random.default_rng(0).permutation(graph.num_nodes))
    return graph


def measure(name: str, how: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One partition, in this process: figures, seconds, bytes."""
    graph = load(name, arguments.data, quick=arguments.quick)
    _ = graph.by_receiver, graph.is_symmetric  # built once and kept: not the partitioner's
    found: dict[str, Any] = {}

    def run() -> None:
        started = time.perf_counter()
        found["partition"] = gtjax.partition_graph(graph, PARTS, how, seed=seed)
        found["seconds"] = time.perf_counter() - started

    peak = peak_above_start(run)
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    cut = found["partition"].cut(graph)
    return {
        "seed": seed,
        "cut": cut.cut,
        "edge_imbalance": cut.edge_imbalance,
        "node_imbalance": cut.node_imbalance,
        "largest_halo_over_mean_nodes": float(cut.halo_p.max() * PARTS / cut.num_nodes),
        "seconds": found["seconds"],
        "peak_bytes": peak["bytes"],
        "child_peak_bytes": child or None,
        "memory_method": peak["method"],
        "nodes": cut.num_nodes,
        "edges": cut.num_edges,
    }


def in_child(name: str, how: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, so that memory is that of this partitioner alone."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(Path(__file__)), "--one", name, how, str(seed), str(answer)]
        command += ["--quick"] if arguments.quick else ["--data", str(arguments.data)]
        subprocess.run(command, check=True)
        return json.loads(answer.read_text(encoding="utf-8"))


def run_graph(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Every partitioner on one graph, interleaved."""
    runs: dict[str, list[dict[str, Any]]] = {how: [] for how in HOWS}
    for seed in range(arguments.seeds):
        for how in HOWS:
            result = in_child(name, how, seed, arguments)
            runs[how].append(result)
            print(name, how, {key: result[key] for key in ("cut", "seconds")}, flush=True)
    sizes = {key: runs[HOWS[0]][0][key] for key in ("nodes", "edges")}
    return {
        **sizes,
        "shuffled": GRAPHS[name],
        "parts": PARTS,
        "runs": {
            how: [{key: run[key] for key in run if key not in sizes} for run in found]
            for how, found in runs.items()
        },
        "machine": {
            "cores": os.cpu_count(),
            "platform": platform.platform(),
            "load_average": os.getloadavg(),
        },
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "scipy", "pymetis")},
        },
        "command": "python experiments/partition.py --data FOLDER",
    }


def table(results: dict[str, Any]) -> str:
    """The results as Markdown: medians over the seeds."""
    lines = [
        "| graph | partitioner | cut | edges, max/mean | nodes, max/mean | s | peak memory, MB |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, result in results.items():
        shown = f"{name}, shuffled" if result["shuffled"] else name
        for how, runs in result["runs"].items():
            middle = {
                key: statistics.median(run[key] for run in runs)
                for key in ("cut", "edge_imbalance", "node_imbalance", "seconds")
            }
            lines.append(
                f"| {shown} | `{how}` | {middle['cut']:.3f} | {middle['edge_imbalance']:.2f} | "
                f"{middle['node_imbalance']:.2f} | {middle['seconds']:.1f} | {_megabytes(runs)} |"
            )
    return "\n".join(lines)


def _megabytes(runs: list[dict[str, Any]]) -> str:
    """The process that partitions, and METIS's beside it."""
    known = [run for run in runs if run["peak_bytes"] is not None]
    if not known:
        return "-"
    peaks = [run["peak_bytes"] + (run["child_peak_bytes"] or 0) for run in known]
    return f"{statistics.median(peaks) / 1e6:.0f}"


def stored(out: Path) -> dict[str, Any]:
    """The results so far."""
    path = out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Partitioners on real graphs.")
    parser.add_argument("--data", type=Path, help="folder with the graphs")
    parser.add_argument("--only", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--quick", action="store_true", help="smoke run: small generated graphs")
    parser.add_argument("--out", type=Path, help="folder of the results; a smoke run needs one")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds is at least 1; found {arguments.seeds}")
    if not (arguments.quick or arguments.data):
        parser.error("--data FOLDER says where the graphs are")
    if arguments.quick and not (arguments.out or arguments.one):
        parser.error("--quick needs --out FOLDER: it would take the place of better results")
    arguments.out = arguments.out or HERE
    return arguments


def main() -> None:
    """Run what is asked for, and store each graph's result as soon as it is there."""
    arguments = parse()
    if arguments.one:
        name, how, seed, answer = arguments.one
        result = measure(name, how, int(seed), arguments)
        Path(answer).write_text(json.dumps(result), encoding="utf-8")
        return
    for name in arguments.only:
        results = stored(arguments.out) | {name: run_graph(name, arguments)}
        ordered = {each: results[each] for each in GRAPHS if each in results}
        arguments.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(ordered, indent=1, allow_nan=False)
        (arguments.out / "results.json").write_text(text + "\n", encoding="utf-8")
    print(table(stored(arguments.out)))


if __name__ == "__main__":
    main()

"""From a file to the first step, on one host: what each stage takes, and how much memory.

    python experiments/host_side.py [--nodes 1e7 --edges 1e8] [--only stages partition]

Makes an R-MAT graph with 64 features of 16 bits, writes it as `.npz` (not timed), and then, each in
a process of its own: reads it, makes it symmetric with self-loops, finds an order of the nodes and
lays out the edges, stage by stage; runs `gtjax train` on it until its first step is there; cuts it
into 8 parts by streaming. Memory is the high-water mark of the resident set, of a stage beyond what
was there before it. Results are in `experiments/host_side/results.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from contenders.memory import peak_above_start

import gtjax

RESULTS = Path(__file__).parent / "host_side" / "results.json"
PACKAGES = ("gtjax", "jax", "jaxlib", "numpy")
FEATURES, CLASSES, PARTS = 64, 10, 8
COMMAND = "import sys; from gtjax.cli.main import main; sys.exit(main(sys.argv[1:]))"
TRAIN = ("--model", "gcn", "--model.hidden", "16", "--model.layers", "2", "--steps", "1")
LIMIT_SECONDS = 3600.0


def make(path: Path, nodes: int, edges: int) -> None:
    """Write the graph that all stages read."""
    graph = gtjax.load(f"rmat:nodes={nodes},edges={edges}")
    rng = np.random.default_rng(0)
    share_n = rng.random(graph.num_nodes)
    graph = dataclasses.replace(
        graph,
        x_nf=rng.standard_normal((graph.num_nodes, FEATURES), np.float32).astype(np.float16),
        labels_n=rng.integers(0, CLASSES, graph.num_nodes).astype(np.int32),
        split_n={
            "train": share_n < 0.1,
            "val": (share_n >= 0.1) & (share_n < 0.2),
            "test": share_n >= 0.2,
        },
    )
    gtjax.save_npz(graph, path)


def stages(path: Path) -> dict[str, Any]:
    """Reading, preparing, ordering and laying out, one after the other, in this process."""
    from gtjax.batching.config import PrepareConfig
    from gtjax.batching.prepare import prepare_graph
    from gtjax.graph.locality import locality_order
    from gtjax.partition import partition_graph
    from gtjax.strategies import STRATEGIES, MeshShape, number_nodes

    found: dict[str, Any] = {}
    kept: dict[str, Any] = {}

    def stage(name: str, run: Callable[[], Any]) -> None:
        found[name] = {}

        def timed() -> None:
            start = time.perf_counter()
            kept[name] = run()
            found[name]["seconds"] = time.perf_counter() - start

        found[name]["bytes"] = peak_above_start(timed)["bytes"]
        print(name, found[name], flush=True)

    stage("read", lambda: gtjax.load(path))
    stage("add edges", lambda: prepare_graph(kept.pop("read"), PrepareConfig()))
    graph = kept["add edges"]
    found["edges"] = graph.num_edges
    stage("order", lambda: locality_order(graph))
    numbering = number_nodes(partition_graph(graph, 1), kept["order"], 1)
    layout = STRATEGIES["single"].layout
    stage("lay out", lambda: layout(graph, numbering, numbering, MeshShape(1, 1), forms=()))
    return found


def first_step(path: Path) -> dict[str, Any]:
    """`gtjax train` from the command to the first step, and the most memory until then."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["train", "--data", str(path), *TRAIN, "--out", str(out)]
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *words])
        most, rows = 0, out / "metrics.jsonl"
        while not (rows.exists() and rows.stat().st_size):
            if process.poll() is not None or time.perf_counter() - start > LIMIT_SECONDS:
                break
            most = max(most, high_water(process.pid))
            time.sleep(0.05)
        there = rows.exists() and rows.stat().st_size > 0
        seconds = time.perf_counter() - start
        if process.wait() or not there:
            raise RuntimeError(f"gtjax {' '.join(words)} ended with {process.returncode}")
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        return {
            "seconds": seconds,
            "peak_bytes": most,
            "stages": result["seconds"],
            "step_seconds": result["seconds_per_step"],
            "options": " ".join(TRAIN),
        }


def high_water(pid: int) -> int:
    """The most memory that a process has held; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return 1024 * int(found[0]) if found else 0


def partition(path: Path) -> dict[str, Any]:
    """Cut into parts by streaming, as for training on so many devices."""
    from gtjax.batching.config import PrepareConfig
    from gtjax.batching.prepare import prepare_graph
    from gtjax.partition import partition_graph

    graph = prepare_graph(gtjax.load(path), PrepareConfig())
    _ = graph.by_receiver, graph.is_symmetric  # built once and kept: not the partitioner's
    found: dict[str, Any] = {}

    def run() -> None:
        start = time.perf_counter()
        made = partition_graph(graph, PARTS, "streaming", seed=0)
        found["seconds"] = time.perf_counter() - start
        found["cut"] = float(made.cut(graph).cut)

    found["bytes"] = peak_above_start(run)["bytes"]
    found |= {"edges": graph.num_edges, "parts": PARTS}
    return found | {"edges_per_second": graph.num_edges / found["seconds"]}


WHAT = {"stages": stages, "first step": first_step, "partition": partition}


def in_a_process(what: str, path: Path) -> dict[str, Any]:
    """One of them, without what the others have left in memory."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--what", what, "--graph", str(path)]
        subprocess.run([*command, "--result", str(out)], check=True)
        return json.loads(out.read_text(encoding="utf-8"))


def table(known: dict[str, Any]) -> str:
    """Seconds and memory of every stage."""
    raw = 8 * known["stages"]["edges"]
    lines = ["| stage | seconds | memory | of two 32-bit numbers an edge |", "|---|---|---|---|"]
    rows = {name: known["stages"][name] for name in ("read", "add edges", "order", "lay out")}
    rows |= (
        {f"cut into {PARTS} parts by streaming": known["partition"]} if "partition" in known else {}
    )
    for name, each in rows.items():
        size = each["bytes"]
        lines.append(
            f"| {name} | {each['seconds']:.1f} | {size / 1e9:.2f} GB | {size / raw:.1f}x |"
        )
    if "first step" in known:
        first = known["first step"]
        lines.append(
            f"| `gtjax train` to its first step, all in all | {first['seconds']:.0f} | "
            f"{first['peak_bytes'] / 1e9:.2f} GB | {first['peak_bytes'] / raw:.1f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    """Make the graph, measure what is asked for, and store each as soon as it is there."""
    parser = argparse.ArgumentParser(description="From a file to the first step.")
    parser.add_argument("--nodes", type=float, default=1e7)
    parser.add_argument("--edges", type=float, default=1e8)
    parser.add_argument("--only", nargs="*", choices=list(WHAT), default=list(WHAT))
    parser.add_argument("--graph", type=Path, help="where the graph is, or will be written")
    parser.add_argument("--what", choices=[*WHAT, "make"], help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, default=RESULTS)
    given = parser.parse_args()
    nodes, edges = int(given.nodes), int(given.edges)
    if given.what == "make":
        make(given.graph, nodes, edges)
        return
    if given.what is not None:
        given.result.write_text(json.dumps(WHAT[given.what](given.graph)), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.graph or Path(folder) / "graph.npz"
        if not path.exists():
            sizes = ["--nodes", str(nodes), "--edges", str(edges)]
            command = [sys.executable, __file__, "--what", "make", "--graph", str(path)]
            subprocess.run([*command, *sizes], check=True)
        known: dict[str, Any] = {}
        if given.result.exists():
            known = json.loads(given.result.read_text(encoding="utf-8"))
        if (known.get("nodes"), known.get("edges")) != (nodes, edges):
            known = {"nodes": nodes, "edges": edges}
        for what in given.only:
            known[what] = in_a_process(what, path) | {"load": os.getloadavg()[0]}
            print(what, known[what], flush=True)
            known |= {
                "file_bytes": path.stat().st_size,
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "versions": {each: importlib.metadata.version(each) for each in PACKAGES},
                "command": f"python experiments/host_side.py --nodes {nodes:g} --edges {edges:g}",
            }
            given.result.parent.mkdir(parents=True, exist_ok=True)
            given.result.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Sampled mini-batches against DGL: the sampler alone, and epochs of GraphSAGE.

    python experiments/sampling.py --data FOLDER [--only ogbn-arxiv rmat accuracy]

The sampler draws fan-out 15, 10, 5 for 1024 nodes, on the topology of ogbn-arxiv (FOLDER/ogbn-
arxiv.npz) and on an R-MAT graph of ten million nodes; an epoch is one of a GraphSAGE of 3 layers,
256 wide, on the former. DGL (2.1, in an environment of its own, made on first use) and gtjax run in
processes of their own on the same cores, and take turns, round by round. A DGL sampler draws again
for the nodes of earlier hops, so that its batches have more edges: compare edges a second, and
epochs.

`accuracy` trains sampled and full-batch on ogbn-arxiv's topology and on amazon-computers, 3 seeds
each. Results are in `experiments/sampling/results.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from attention import machine
from contenders.environments import interpreter
from contenders.process import Worker
from contenders.work import Absent

import gtjax
from gtjax.core.user_cache import user_cache
from gtjax.graph.csr import build_csr

HERE = Path(__file__).parent / "sampling"
ROUNDS = 7
FAN_OUTS, BATCH_SIZE = (15, 10, 5), 1024
MODEL = {"hidden": 256, "layers": 3, "dropout": 0.5}
RMAT, SMALL_RMAT = "rmat:nodes=1e7,edges=1e8", "rmat:nodes=2e4,edges=2e5"
CASES = ("ogbn-arxiv", "rmat", "accuracy")
CONTENDERS = ("ours", "dgl", "dgl-plain")  # its fused sampler, and the one before that
# Model, fan-out, batch size, steps of full batches, epochs of sampled ones.
ACCURACY: dict[str, Any] = {
    "ogbn-arxiv": ({"hidden": 64, "layers": 2, "dropout": 0.3}, "15,10", 1024, 200, 10),
    "amazon-computers": ({"hidden": 64, "layers": 2, "dropout": 0.5}, "15,10", 512, 400, 40),
}
EVERYTHING = 10**9  # steps: the whole epoch


def write_arxiv(folder: Path, data: Path, *, quick: bool) -> None:
    """Topology with both directions and self-loops, features and labels."""
    graph = gtjax.load(data / "ogbn-arxiv.npz")
    edges = graph.symmetrised().with_self_loops()
    write(folder, edges.by_receiver, np.flatnonzero(graph.split_n["train"]))
    np.save(folder / "features.npy", np.asarray(graph.x_nf, np.float32))
    np.save(folder / "labels.npy", graph.labels_n)
    steps = 2 if quick else EVERYTHING
    write_settings(folder, ["sample", "epoch"], draws=4 if quick else 40, steps=steps)


def write_rmat(folder: Path, *, quick: bool) -> None:
    """Topology alone; any node is a seed."""
    graph = gtjax.load(SMALL_RMAT if quick else RMAT)
    by_receiver = build_csr(graph.receivers_e, graph.senders_e, graph.num_nodes)
    write(folder, by_receiver, np.arange(graph.num_nodes))
    write_settings(folder, ["sample"], draws=4 if quick else 40, steps=0)


def write(folder: Path, by_receiver: Any, train: np.ndarray) -> None:
    """What every case has."""
    np.save(folder / "offsets.npy", by_receiver.offsets)
    np.save(folder / "senders.npy", by_receiver.neighbours_e.astype(np.int32))
    np.save(folder / "train.npy", train)


def write_settings(folder: Path, operations: list[str], *, draws: int, steps: int) -> None:
    """How it is measured."""
    settings = {
        "operations": operations,
        "fan_outs": FAN_OUTS,
        "batch_size": BATCH_SIZE,
        "draws": draws,
        "steps": steps,
        "model": MODEL,
    }
    (folder / "case.json").write_text(json.dumps(settings), encoding="utf-8")


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """All contenders loaded, one of them running, round by round."""
    peer = interpreter("dgl", arguments.peers_folder)
    pythons = {"ours": Path(sys.executable), "dgl": peer, "dgl-plain": peer}
    module = "contenders.sampling_worker"
    workers = {
        name: Worker(name, python, folder, module=module) for name, python in pythons.items()
    }
    settings = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    try:
        known = {name: worker.ready() for name, worker in workers.items()}
        found: dict[str, Any] = {}
        for operation in settings["operations"]:
            rounds = arguments.rounds if operation == "sample" else min(3, arguments.rounds)
            for name in workers:
                workers[name].ask("time", operation)  # warms up
            runs: dict[str, list[Any]] = {name: [] for name in workers}
            for number in range(rounds):
                order = list(workers) if number % 2 else list(reversed(workers))
                for name in order:
                    runs[name].append(workers[name].ask("time", operation))
            found[operation] = {name: summary(each) for name, each in runs.items()}
            print(json.dumps({operation: found[operation]}, indent=1), flush=True)
    finally:
        for worker in workers.values():
            worker.close()
    return {"settings": settings, "contenders": known, "machine": machine(), **found}


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """The median round, and all of them."""
    seconds = [run["seconds"] for run in runs]
    result = {
        "median_seconds": statistics.median(seconds),
        "seconds": seconds,
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "edges": runs[-1]["edges"],
        "edges_per_second": statistics.median(run["edges"] / run["seconds"] for run in runs),
    }
    if "waited" in runs[0]:
        result["waiting"] = statistics.median(run["waited"] / run["seconds"] for run in runs)
    if "loss" in runs[0]:
        result |= {"loss": runs[-1]["loss"], "steps": runs[-1]["steps"]}
    return result


def accuracy(data: Path, *, quick: bool) -> dict[str, Any]:
    """Sampled against full-batch, seed by seed: the same model and optimiser, tuned for neither."""
    found: dict[str, Any] = {}
    for name, (model, fan_out, size, full_steps, epochs) in ACCURACY.items():
        graph = gtjax.load(data / f"{name}.npz")
        per_epoch = -(-int(graph.split_n["train"].sum()) // size)
        sampled = gtjax.BatchesConfig(batching="neighbours", fan_out=fan_out, batch_size=size)
        ways = {
            "full": (gtjax.BatchesConfig(), full_steps, 20),
            "sampled": (sampled, epochs * per_epoch, per_epoch),
        }
        for way, (batches, steps, every) in ways.items():
            tests = []
            for seed in range(1 if quick else 3):
                with tempfile.TemporaryDirectory() as folder:
                    config = gtjax.TrainConfig(
                        model=gtjax.SAGEConfig(norm="layer", **model),
                        steps=4 if quick else steps,
                        eval_every=every,
                        seed=seed,
                        batches=batches,
                        out=Path(folder) / "run",
                    )
                    result = gtjax.fit(graph, config=config, show_progress=False)
                tests.append(result["test_accuracy"])
                print(name, way, seed, round(tests[-1], 4), flush=True)
            found.setdefault(name, {})[way] = {
                "test_accuracy": tests,
                "mean": statistics.fmean(tests),
                "steps": steps,
                "fan_out": fan_out if way == "sampled" else None,
            }
    return found


def table(results: dict[str, Any]) -> str:
    """As in the README."""
    lines = [
        "| what | gtjax | DGL 2.1, the faster way | ratio |",
        "|---|---|---|---|",
    ]
    for name in ("ogbn-arxiv", "rmat"):
        if name not in results:
            continue
        result = results[name]
        a, *others = (result["sample"][who]["edges_per_second"] / 1e6 for who in CONTENDERS)
        b = max(others)
        lines.append(f"| sampler, {name}, million edges/s | {a:.1f} | {b:.1f} | {a / b:.1f} |")
        if "epoch" in result:
            a, *others = (result["epoch"][who]["median_seconds"] for who in CONTENDERS)
            b = min(others)
            waits = 100 * result["epoch"]["ours"]["waiting"]
            what = f"epoch, {name}, s (devices wait {waits:.1f} %)"
            lines.append(f"| {what} | {a:.1f} | {b:.1f} | {b / a:.1f} |")
    if "accuracy" in results:
        lines += ["", "| test accuracy, 3 seeds | full batch | sampled |", "|---|---|---|"]
        for name, ways in results["accuracy"].items():
            full, sampled = (100 * ways[way]["mean"] for way in ("full", "sampled"))
            lines.append(f"| {name} | {full:.2f} | {sampled:.2f} |")
    return "\n".join(lines)


def stored(out: Path) -> dict[str, Any]:
    """The results so far."""
    path = out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> None:
    """Run what is asked for, and store each result as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="smoke run, stored only with --out")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--peers-folder", type=Path, default=user_cache() / "peers")
    arguments = parser.parse_args()
    out = arguments.out or (None if arguments.quick else HERE)
    results = {} if out is None else stored(out)
    data: Path | None = arguments.data
    for name in arguments.only:
        if name != "rmat" and data is None:
            print(f"{name}: absent: --data FOLDER says where the real graphs are", flush=True)
            continue
        try:
            if name == "accuracy":
                assert data is not None
                results[name] = accuracy(data, quick=arguments.quick)
            else:
                with tempfile.TemporaryDirectory() as folder:
                    if name == "rmat":
                        write_rmat(Path(folder), quick=arguments.quick)
                    elif data is not None:
                        write_arxiv(Path(folder), data, quick=arguments.quick)
                    results[name] = compare(Path(folder), arguments)
        except Absent as reason:
            print(f"{name}: absent: {reason}", flush=True)
            continue
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(results, indent=1, allow_nan=False)
            (out / "results.json").write_text(text + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()

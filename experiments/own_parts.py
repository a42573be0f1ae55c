"""Layout of 8 parts by 4 processes, each its own: the memory of each, against its share.

    python experiments/own_parts.py [--nodes 500000] [--edges 5000000] [--features 100]
        [--strategies node_halo node_all_gather] [--out FILE]

An R-MAT graph is cut and stored in parts once. Then four real processes, each with two simulated
devices, write the shards of their own parts (`gtjax.batching.own_parts`), and one process writes
all, from the graph in memory, as it is done without a stored partition. Memory is anonymous memory
(RssAnon) at most, sampled every 2 ms by a process of its own, minus what the process had before it
began; pages of mapped files, which the system may drop, are not counted, and VmHWM, in which they
are, is told beside it. A process's share are the bytes of the shards that it writes; the node map
is 20 bytes a node: the owner, the node at every position, and the position of every node.
Every file is compared with that of the one process. Results: `experiments/own_parts/results.json`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "own_parts" / "results.json"
PROCESSES, PARTS = 4, 8
NODE_MAP_BYTES = 4 + 8 + 8  # a node
WANTED = 1.3


def status_bytes(pid: int, name: str) -> int:
    """A line of what the system says of a process, 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def settings_of(arguments: Any) -> Any:
    """What batches depend on, for features as they are and kernels that need no form of edges."""
    from gtjax.batching.config import BatchingSettings, PrepareConfig
    from gtjax.batching.features import Scaling
    from gtjax.tasks.base import split_masks

    return BatchingSettings(
        hidden=64,
        targets=lambda graph: {"labels": graph.labels, **split_masks(graph)},
        scaling=Scaling("none"),
        prepare=PrepareConfig(features="none", reorder="never"),
    )


def spread_of(strategy: str) -> Any:
    """The strategy on all devices along the node axis."""
    from gtjax.sharding.mesh import Spread, make_mesh
    from gtjax.strategies import STRATEGIES, MeshShape

    return Spread(STRATEGIES[strategy], MeshShape(PARTS), make_mesh(MeshShape(PARTS)))


def made(arguments: Any, folder: Path) -> None:
    """The graph in a file, and in parts."""
    import numpy as np

    from gtjax.graph.generators import rmat
    from gtjax.partition import partition_graph, save_partition

    sizes = {name: getattr(arguments, name) for name in ("nodes", "edges", "features")}
    graph = rmat(**sizes)
    partition = partition_graph(graph, PARTS, "contiguous")
    save_partition(folder / "partition", graph, partition)
    splits: dict[str, Any] = {f"split_{name}": m for name, m in graph.split_n.items()}
    arrays: dict[str, Any] = {"senders": graph.senders_e, "receivers": graph.receivers_e}
    np.savez(folder / "graph.npz", x=graph.x_nf, labels=graph.labels_n, **arrays, **splits)


def loaded(folder: Path) -> Any:
    """The graph in memory."""
    import numpy as np

    from gtjax.graph import Graph

    with np.load(folder / "graph.npz") as file:
        names = [name for name in file.files if name.startswith("split_")]
        splits = {name.removeprefix("split_"): file[name] for name in names}
        return Graph(file["senders"], file["receivers"], file["x"], file["labels"], splits)


def together(word: str) -> None:
    """Tell who measures, and wait for it."""
    print(f"@{word}", flush=True)
    sys.stdin.readline()


def write_own(arguments: Any, folder: Path) -> None:
    """One of several processes."""
    import jax

    jax.config.update("jax_num_cpu_devices", PARTS // PROCESSES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        arguments.address,
        PROCESSES,
        arguments.process,
        cluster_detection_method="deactivate",
        initialization_timeout=900,
        coordinator_bind_address=arguments.address,
    )
    from gtjax.batching.own_parts import parts_of, write_own_parts
    from gtjax.distributed.team import this_team
    from gtjax.partition import open_partition

    team, spread = this_team(), spread_of(arguments.strategies[0])
    settings, stored = settings_of(arguments), open_partition(folder / "partition")
    own = parts_of(spread.mesh, team.index)
    together("begin")
    write_own_parts(team, folder / "many", stored, settings, spread, own, about={})
    together("end")
    jax.distributed.shutdown()


def write_all(arguments: Any, folder: Path) -> None:
    """The one process that has the whole graph."""
    import jax

    jax.config.update("jax_num_cpu_devices", PARTS)
    from gtjax.batching.config import PrepareConfig
    from gtjax.batching.prepare import prepare, store_batch
    from gtjax.partition import open_partition
    from gtjax.strategies import number_nodes

    spread, settings = spread_of(arguments.strategies[0]), settings_of(arguments)
    partition = open_partition(folder / "partition").partition
    jax.devices()
    together("begin")
    edges = PrepareConfig(symmetrise=False, self_loops=False, features="none", reorder="never")
    host = prepare(loaded(folder), dataclasses.replace(settings, prepare=edges))
    nodes = number_nodes(partition)
    layout = spread.strategy.layout(host.edges, nodes, nodes, spread.shape)
    store_batch(folder / "one", host, layout, spread, about={})
    together("end")


def watched(arguments: Any, folder: Path, strategy: str, count: int) -> list[dict[str, Any]]:
    """Run so many processes, and watch the memory of each."""
    from gtjax.distributed.supervisor import free_port

    words = ["--strategies", strategy, "--folder", str(folder)]
    words += ["--address", f"127.0.0.1:{free_port()}"]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, *words, "--process", str(index if count > 1 else -1)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    found: list[dict[str, Any]] = []
    try:
        for process in processes:
            _heard(process, "begin")
        for process in processes:
            Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")
            anonymous = status_bytes(process.pid, "RssAnon")
            resident = status_bytes(process.pid, "VmRSS")
            found.append({"before": anonymous, "resident": resident, "peak": 0, "seconds": 0.0})
        begun = time.monotonic()
        for process in processes:
            _go(process)
        pipes = [process.stdout for process in processes]
        pending = {pipe.fileno(): index for index, pipe in enumerate(pipes) if pipe is not None}
        while pending:
            for index, process in enumerate(processes):
                each = found[index]
                each["peak"] = max(each["peak"], status_bytes(process.pid, "RssAnon"))
            for number in select.select(list(pending), [], [], 0.002)[0]:
                index = pending.pop(number)
                _heard(processes[index], "end")
                found[index]["seconds"] = time.monotonic() - begun
                found[index]["high_water"] = status_bytes(processes[index].pid, "VmHWM")
        for process in processes:
            _go(process)
        for process in processes:
            process.wait(timeout=120)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        {
            "anonymous_bytes": each["peak"] - each["before"],
            "resident_bytes": each["high_water"] - each["resident"],
            "seconds": each["seconds"],
        }
        for each in found
    ]


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _heard(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(f"@{word}\n"):  # gloo may speak before
            return
    raise SystemExit(f"a process ended with {process.wait()} before it said {word}")


def hashes(folder: Path) -> dict[str, str]:
    """Of all arrays."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.npy"))
    }


def measured(arguments: Any, folder: Path, strategy: str) -> dict[str, Any]:
    """What four processes and one take for a strategy."""
    own = watched(arguments, folder, strategy, PROCESSES)
    (one,) = watched(arguments, folder, strategy, 1)
    same = hashes(folder / "many") == hashes(folder / "one")
    each = PARTS // PROCESSES
    for index, process in enumerate(own):
        parts = range(index * each, (index + 1) * each)
        files = [f for p in parts for f in (folder / "many" / f"shard-{p:05d}").glob("*.npy")]
        process["share_bytes"] = sum(path.stat().st_size for path in files)
        allowed = NODE_MAP_BYTES * arguments.nodes
        process["over_share"] = (process["anonymous_bytes"] - allowed) / process["share_bytes"]
    shutil.rmtree(folder / "many")
    shutil.rmtree(folder / "one")
    return {"processes": own, "one": one, "bit_equal": same}


def table(results: dict[str, Any]) -> str:
    """The strategies, for the README."""
    lines = [
        "| strategy | share of a process | node map | peak of a process, at most | beyond the node "
        "map, over the share | one process for all | same bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    graph = results["graph"]
    for strategy, found in results["strategies"].items():
        worst = max(found["processes"], key=lambda each: each["over_share"])
        sizes = (
            worst["share_bytes"],
            NODE_MAP_BYTES * graph["nodes"],
            max(each["anonymous_bytes"] for each in found["processes"]),
        )
        shown = " | ".join(f"{size / 2**20:.0f} MiB" for size in sizes)
        held = "" if worst["over_share"] <= WANTED else f" (**{WANTED:g} was wanted**)"
        lines.append(
            f"| {strategy} | {shown} | {worst['over_share']:.2f}{held} | "
            f"{found['one']['anonymous_bytes'] / 2**20:.0f} MiB | "
            f"{'yes' if found['bit_equal'] else '**no**'} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description="Memory of processes that lay out their parts.")
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--strategies", nargs="+", default=["node_halo", "node_all_gather"])
    parser.add_argument("--out", type=Path, default=STORED)
    for name, kind in (("process", int), ("folder", Path), ("address", str)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process is not None:
        write = write_own if arguments.process >= 0 else write_all
        write(arguments, arguments.folder)
        return
    import jax
    import numpy

    sizes = {name: getattr(arguments, name) for name in ("nodes", "edges", "features")}
    results: dict[str, Any] = {
        "command": "python experiments/own_parts.py "
        + " ".join(f"--{name} {size}" for name, size in sizes.items())
        + f" --strategies {' '.join(arguments.strategies)}",
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"jax": jax.__version__, "numpy": numpy.__version__},
        "cores": len(os.sched_getaffinity(0)),
        "graph": sizes,
        "parts": PARTS,
        "strategies": {},
    }
    folder = Path(tempfile.mkdtemp(prefix="gtjax-own-parts-"))
    try:
        # In a process of its own: this one only watches.
        code = "import argparse, pathlib, own_parts; own_parts.made(argparse.Namespace("
        code += ", ".join(f"{name}={size}" for name, size in sizes.items())
        code += f"), pathlib.Path({str(folder)!r}))"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
        for name in arguments.strategies:  # stored one by one
            results["strategies"][name] = measured(arguments, folder, name)
            print(name, json.dumps(results["strategies"][name]), flush=True)
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(results))


if __name__ == "__main__":
    main()

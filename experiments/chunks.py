"""Exact training from disk: memory, time and what bounds it, on an R-MAT graph of any size.

    python experiments/chunks.py --nodes 1e7 --edges 1e8 --features 128 --hidden 128 --layers 3 \
        --memory 4 --folder FOLDER
    python experiments/chunks.py --both --nodes 1e6 --edges 1e7

Everything happens in child processes: one draws the graph into files under FOLDER (about 20 GB for
the first line, and 40 more while it trains), one trains in chunks, and with `--both` one trains the
same model on the same graph in memory. What a child takes is its largest anonymous memory
(RssAnon), looked at ten times a second: pages of mapped files are the system's to keep or drop.
Results are added to `experiments/chunks/results.json`; the folder is removed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

HERE = Path(__file__).parent / "chunks"
RESULTS = HERE / "results.json"
CLASSES, BLOCK = 16, 1 << 20
CHANCES = (0.57, 0.19, 0.19)  # of the quadrants, as in Graph500


def draw(folder: Path, nodes: int, edges: int, features: int, seed: int = 0) -> None:
    """Write an R-MAT graph: edges in both directions and both orders, features, labels."""
    from gtjax.graph.csr import build_csr

    rng = np.random.default_rng(seed)
    half, low, high = edges // 2, [], []
    while half > 0:
        rows, columns = _entries(nodes, rng)
        low.append(rows[:half])
        high.append(columns[:half])
        half -= len(low[-1])
    number_of = rng.permutation(nodes).astype(np.int32)
    one, other = (number_of[np.concatenate(each)] for each in (low, high))
    del low, high
    senders, receivers = np.concatenate([one, other]), np.concatenate([other, one])
    del one, other
    by_receiver = build_csr(receivers, senders, nodes)
    del senders, receivers
    np.save(folder / "in_offsets.npy", by_receiver.offsets)
    np.save(folder / "in_senders.npy", by_receiver.neighbours_e)
    rows_e = np.repeat(np.arange(nodes, dtype=np.int32), by_receiver.degrees_n)
    by_sender = build_csr(by_receiver.neighbours_e, rows_e, nodes)
    np.save(folder / "out_offsets.npy", by_sender.offsets)
    np.save(folder / "out_receivers.npy", by_sender.neighbours_e)
    np.save(folder / "out_places.npy", by_sender.edge_ids_e)
    labels_n = rng.integers(0, CLASSES, nodes).astype(np.int32)
    np.save(folder / "labels.npy", labels_n)
    np.save(folder / "split.npy", rng.integers(0, 3, nodes).astype(np.int8))
    x_nf = np.lib.format.open_memmap(
        folder / "x.npy", "w+", dtype=np.float32, shape=(nodes, features)
    )
    centres = rng.normal(size=(CLASSES, features)).astype(np.float32)
    for start in range(0, nodes, BLOCK):
        rows = x_nf[start : start + BLOCK]
        rows[:] = rng.standard_normal(rows.shape, np.float32)
        rows += centres[labels_n[start : start + BLOCK]]


def _entries(nodes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    a, b, c = CHANCES
    rows, columns = np.zeros((2, BLOCK), np.int32)
    for _ in range((nodes - 1).bit_length()):
        chance = rng.random(BLOCK, np.float32)
        down = chance >= a + b
        right = ((chance >= a) & ~down) | (chance >= a + b + c)
        rows, columns = 2 * rows + down, 2 * columns + right
    inside = (rows < nodes) & (columns < nodes)
    return rows[inside].astype(np.int32), columns[inside].astype(np.int32)


def settings(arguments: Any) -> Any:
    """The run's config, program and what the planner says of it in memory."""
    import dataclasses

    import gtjax
    from gtjax.runs.abstract_step import Sizes
    from gtjax.runs.config import with_model
    from gtjax.runs.program import Program

    sizes = Sizes(arguments.nodes, arguments.edges, arguments.features, CLASSES)
    config = with_model(gtjax.TrainConfig(steps=100), arguments.model)
    changes = {"hidden": arguments.hidden, "layers": arguments.layers, "dropout": 0.2}
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **changes))
    graph = sizes.stand_in()
    return config, Program(config, graph, config.task_of(graph)), sizes


def opened(folder: Path, arguments: Any) -> Any:
    """The graph in the folder, to be read in chunks."""
    from gtjax.batching.chunked_graph import ChunkedGraph
    from gtjax.batching.features import Scaling
    from gtjax.graph.csr import CSR

    def mapped(name: str) -> np.ndarray:
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    split_n = np.asarray(mapped("split"))
    targets = {"labels": mapped("labels")}
    targets |= {name: split_n == i for i, name in enumerate(("train", "val", "test"))}
    names = ("offsets", "neighbours_e", "edge_ids_e")
    # Edges are numbered as they stand by receiver, so nothing is stored of that.
    incoming = SimpleNamespace(
        **dict(zip(names, (mapped("in_offsets"), mapped("in_senders"), None), strict=True))
    )
    return ChunkedGraph(
        mapped("x"),
        Scaling("none"),
        cast("CSR", incoming),
        CSR(mapped("out_offsets"), mapped("out_receivers"), mapped("out_places")),
        None,
        None,
        targets,
        arguments.memory,
        folder / "scratch",
    )


def train_in_chunks(folder: Path, arguments: Any) -> dict[str, Any]:
    """Some steps in chunks, each timed."""
    from gtjax.runs.chunked import ChunkedProgram

    _, program, _ = settings(arguments)
    state = program.initial_state()
    chunked = ChunkedProgram(program, opened(folder, arguments))
    seconds, losses, traffic = [], [], []
    for _ in range(arguments.steps + 1):
        before = chunked.scratch.traffic.read, chunked.scratch.traffic.written
        started = time.perf_counter()
        state, loss = chunked.advance(state, 1)
        seconds.append(time.perf_counter() - started)
        losses.append(float(loss[0]))
        after = chunked.scratch.traffic.read, chunked.scratch.traffic.written
        traffic = [b - a for a, b in zip(before, after, strict=True)]
        print(f"step: {seconds[-1]:.2f} s, loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    sizes = chunked.sizes
    return {
        "first_step_seconds": seconds[0],
        "step_seconds": statistics.median(seconds[1:]),
        "all_seconds": seconds,
        "losses": losses,
        "row_bytes_read": traffic[0],
        "row_bytes_written": traffic[1],
        "bytes_in_files": chunked.scratch.file_bytes,
        "bytes_in_arrays": chunked.scratch.memory_bytes,
        "chunk_rows": sizes.node_rows,
        "block_edges": sizes.block_edges,
    }


def train_in_memory(folder: Path, arguments: Any) -> dict[str, Any]:
    """The same steps by one compiled program."""
    import gtjax
    from gtjax.batching.config import PrepareConfig
    from gtjax.batching.prepare import make_batch

    _, program, _ = settings(arguments)
    known = opened(folder, arguments)
    degrees = np.diff(known.by_receiver.offsets)
    receivers = np.repeat(np.arange(arguments.nodes, dtype=np.int32), degrees)
    labels = np.asarray(known.targets["labels"])
    masks = {name: known.targets[name] for name in ("train", "val", "test")}
    graph = gtjax.Graph(
        np.asarray(known.by_receiver.neighbours_e), receivers, np.asarray(known.x_nf), labels, masks
    )
    import dataclasses

    as_it_is = PrepareConfig(symmetrise=False, self_loops=False, features="none", reorder="never")
    made = dataclasses.replace(program.settings, prepare=as_it_is)
    batch = make_batch(graph, made, program.spread)
    del graph, receivers
    state = program.initial_state()
    advance = program.compiled(state, batch, 1)
    seconds, losses = [], []
    for _ in range(arguments.steps + 1):
        started = time.perf_counter()
        state, loss = advance(state, batch, np.int32(1))
        losses.append(float(loss[0]))
        seconds.append(time.perf_counter() - started)
    return {"step_seconds": statistics.median(seconds[1:]), "losses": losses}


def planned(arguments: Any) -> dict[str, Any]:
    """What the planner says that a step takes: in memory, and in chunks."""
    from gtjax.hardware.measure import measured_profile
    from gtjax.runs.planning import in_memory_and_in_chunks

    config, _, sizes = settings(arguments)
    numbers = (arguments.nodes, arguments.edges, arguments.memory * 2**30)
    whole, way = in_memory_and_in_chunks(config, sizes, *numbers, measured_profile())
    return {"bytes_in_memory": whole, "chunks_seconds": way.seconds, "chunks": str(way)}


def disk_speed(folder: Path, size: int = 1 << 30) -> dict[str, float]:
    """Bytes a second written to and read from a file, past the page cache."""
    from gtjax.hardware.disk import measured_disk

    found = measured_disk(folder, size)
    return {"read": found.read, "write": found.write}


CHILDREN = {"draw": None, "chunks": train_in_chunks, "memory": train_in_memory}


def child(what: str, folder: Path, given: list[str]) -> dict[str, Any]:
    """Run a part in a process of its own, and watch its anonymous memory."""
    command = [sys.executable, __file__, "--child", what, "--folder", str(folder), *given]
    path = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{path}:{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    most = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            line = next(x for x in status.splitlines() if x.startswith("RssAnon"))
            most = max(most, int(line.split()[1]) * 1024)
        except (OSError, StopIteration):
            pass
        time.sleep(0.1)
    assert process.stdout is not None
    said = process.stdout.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{what}: exit code {process.returncode}")
    return json.loads(said[-1]) | {"peak_rss_anon_bytes": most}


def run(arguments: Any, given: list[str]) -> dict[str, Any]:
    """All parts, in a new folder that is removed."""
    under = arguments.folder or Path(tempfile.gettempdir())
    under.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="gtjax-experiment-", dir=under))
    try:
        child("draw", folder, given)
        result: dict[str, Any] = {"disk": disk_speed(folder)}
        result["chunks"] = child("chunks", folder, given)
        if arguments.both:
            result["memory"] = child("memory", folder, given)
            ratio = result["chunks"]["step_seconds"] / result["memory"]["step_seconds"]
            result["chunks_over_memory"] = ratio
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result["planned"] = planned(arguments)
    chunks, disk = result["chunks"], result["disk"]
    result["disk_bound_seconds"] = (
        chunks["row_bytes_read"] / disk["read"] + chunks["row_bytes_written"] / disk["write"]
    )
    return result


def parsed() -> tuple[Any, list[str]]:
    """Arguments, and those that children are given too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")

    def whole(text: str) -> int:
        return int(float(text))

    parser.add_argument("--nodes", type=whole, default=1_000_000)
    parser.add_argument("--edges", type=whole, default=10_000_000)
    parser.add_argument("--features", type=whole, default=128)
    parser.add_argument("--hidden", type=whole, default=128)
    parser.add_argument("--layers", type=whole, default=3)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--memory", type=float, default=4.0)
    parser.add_argument("--steps", type=whole, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--both", action="store_true", help="also in memory")
    parser.add_argument("--store", action="store_true", help="add to the stored results")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    known = parser.parse_args()
    numbers = ("nodes", "edges", "features", "hidden", "layers", "model", "memory", "steps")
    return known, [part for n in numbers for part in (f"--{n}", str(getattr(known, n)))]


def main() -> None:
    """One command line, one entry of the results."""
    arguments, given = parsed()
    if arguments.child == "draw":
        numbers = (arguments.nodes, arguments.edges, arguments.features)
        draw(arguments.folder, *numbers)
        print("{}")
        return
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments.folder, arguments)))
        return
    import jax

    result = run(arguments, given)
    asked = dict(zip((x.removeprefix("--") for x in given[::2]), given[1::2], strict=True))
    versions = {"python": platform.python_version(), "jax": jax.__version__}
    entry = {"asked": asked, "versions": versions, "cpus": os.cpu_count(), **result}
    print(json.dumps(entry, indent=2))
    if arguments.store:
        HERE.mkdir(exist_ok=True)
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
        kept = [each for each in known if each["asked"] != asked]
        RESULTS.write_text(json.dumps([*kept, entry], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

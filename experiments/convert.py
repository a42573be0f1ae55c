"""How fast `gtjax convert` is, what memory it takes, and whether it survives being killed.

    python experiments/convert.py --edges 2e8 --nodes 2e7 --out experiments/convert
    python experiments/convert.py --quick

Makes an edge list in random order as CSV and as Parquet in a temporary folder (--scratch), converts
each in a process of its own, and samples the anonymous memory of that process (RssAnon) meanwhile.
Then converts the first again and again, killed (kill -9) at random moments, until it is done, and
compares every array with those of the conversion that was left alone. Takes some 110 bytes of
disk an edge with reverse edges, which are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import gtjax

HERE = Path(__file__).parent / "convert"
ROOT = Path(__file__).parents[1]
ENTRY = [sys.executable, "-c", "import sys; from gtjax.cli.main import main; sys.exit(main())"]
EACH = 4_000_000  # edges made at once
SAMPLE_SECONDS = 0.01


def make(folder: Path, edges: int, nodes: int, kinds: list[str]) -> dict[str, Path]:
    """The same random edges in every kind of file."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    paths = {kind: folder / f"edges.{kind}" for kind in kinds}
    writers: list[Any] = []
    for kind, path in paths.items():
        if kind == "csv":
            options = csv.WriteOptions(quoting_style="none")
            writers.append(csv.CSVWriter(path, schema, write_options=options))
        else:
            writers.append(parquet.ParquetWriter(path, schema))
    for start in range(0, edges, EACH):
        count = min(EACH, edges - start)
        ends = [rng.integers(0, nodes, count) for _ in range(2)]
        table = pa.table(ends, schema=schema)
        for writer in writers:
            writer.write_table(table)
    for writer in writers:
        writer.close()
    return paths


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that no file backs."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def started(data: Path, folder: Path, options: list[str]) -> subprocess.Popen:
    """A process that converts."""
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    words = [*ENTRY, "convert", str(data), str(folder), *options]
    return subprocess.Popen(
        words,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def measured(data: Path, folder: Path, options: list[str]) -> dict[str, float]:
    """Convert once: seconds, processor time, peak anonymous memory."""
    begun, before, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN), 0
    process = started(data, folder, options)
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        assert process.stderr is not None
        raise SystemExit(f"convert failed:\n{process.stderr.read()}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": time.monotonic() - begun,
        "user_seconds": used.ru_utime - before.ru_utime,
        "system_seconds": used.ru_stime - before.ru_stime,
        "peak_anonymous_bytes": peak,
    }


def hashes(folder: Path) -> dict[str, str]:
    """Of every array, as the manifest has them, after all were read again."""
    graph: Any = gtjax.load(folder)
    graph.verify()
    return graph.files.content["files"]


def killed(
    data: Path, folder: Path, options: list[str], kills: int, seconds: float, wanted: dict
) -> dict[str, Any]:
    """Kill conversions at random moments; what comes out in the end has to be what is wanted."""
    draw, moments, wrong, finished = random.Random(0), [], 0, 0
    while len(moments) < kills:
        process = started(data, folder, options)
        # Up to the time that the rest could take; past it, it ends before it can be killed.
        moment = draw.uniform(0.5, seconds)
        try:
            process.wait(moment)
            finished += 1
            wrong += hashes(folder) != wanted
            shutil.rmtree(folder)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            moments.append(round(moment, 2))
            if folder.exists():  # which it is once it is complete
                finished += 1
                wrong += hashes(folder) != wanted
                shutil.rmtree(folder)
    measured(data, folder, options)
    wrong += hashes(folder) != wanted
    return {"kills": moments, "conversions_finished": finished + 1, "wrong": wrong}


def loading(folder: Path) -> dict[str, float]:
    """What opening takes, in a process that has imported everything."""
    gtjax.load(folder)
    before, begun = anonymous_bytes(os.getpid()), time.perf_counter()
    graph = gtjax.load(folder)
    seconds = time.perf_counter() - begun
    held = anonymous_bytes(os.getpid()) - before
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "seconds": seconds, "bytes": held}


def table(results: dict[str, Any]) -> str:
    """As in the README."""
    rows = results["rows_of_edges"]
    lines = [
        "| edge list | seconds | million rows/s | peak anonymous memory | opens in |",
        "|---|---|---|---|---|",
    ]
    for kind in ("csv", "parquet"):
        if kind in results:
            found = results[kind]
            lines.append(
                f"| {kind}, {rows / 1e6:,.0f} million rows | {found['seconds']:.0f} | "
                f"{found['rows_a_second'] / 1e6:.2f} | "
                f"{found['peak_anonymous_bytes'] / 2**30:.2f} GiB | "
                f"{1000 * found['load']['seconds']:.0f} ms |"
            )
    if "killed" in results:
        found = results["killed"]
        rows = found.get("rows_of_edges", rows)
        lines.append(
            f"| killed {len(found['kills'])} times, {rows / 1e6:,.0f} million rows | "
            f"{found['wrong']} folders that load wrong | | | |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--edges", type=float, default=2e8)
    parser.add_argument("--nodes", type=float, default=2e7)
    parser.add_argument("--kinds", nargs="+", default=["csv", "parquet"])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of gtjax convert")
    parser.add_argument("--quick", action="store_true", help="a tiny graph, at most two kills")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--scratch", type=Path, default=None, help="folder for large files")
    arguments = parser.parse_args()
    edges, nodes, kills = int(arguments.edges), int(arguments.nodes), arguments.kills
    if arguments.quick:
        edges, nodes, kills = 200_000, 20_011, min(kills, 2)
    options = [*arguments.options]
    results: dict[str, Any] = {
        "rows_of_edges": edges,
        "nodes": nodes,
        "options": options,
        "versions": {name: version(name) for name in ("numpy", "pyarrow")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        folder = Path(scratch)
        paths = make(folder, edges, nodes, arguments.kinds)
        for kind, path in paths.items():
            target = folder / f"from-{kind}"
            found: dict[str, Any] = dict(measured(path, target, options))
            found |= {"rows_a_second": edges / found["seconds"], "load": loading(target)}
            results[kind] = found
            gib = found["peak_anonymous_bytes"] / 2**30
            print(
                f"{kind}: {found['seconds']:.1f} s, {found['rows_a_second'] / 1e6:.2f} million "
                f"rows/s, {found['user_seconds']:.1f} s user, "
                f"{found['system_seconds']:.1f} s system, "
                f"{gib:.2f} GiB anonymous, opened in {found['load']['seconds']:.4f} s"
            )
            if kind != arguments.kinds[0]:
                shutil.rmtree(target)
                path.unlink()
        if kills:
            first = arguments.kinds[0]
            wanted, seconds = hashes(folder / f"from-{first}"), results[first]["seconds"]
            shutil.rmtree(folder / f"from-{first}")
            found = killed(paths[first], folder / "again", options, kills, seconds, wanted)
            results["killed"] = found
            print(f"killed {len(found['kills'])} times: {found['wrong']} wrong folders")
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

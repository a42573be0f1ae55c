"""The attention op against its peers: time, memory, and a whole step of training around it.

    python experiments/attention.py [--data FOLDER] [--graphs dense] [--contenders cpu pyg]

Compares our CPU back ends with segment operations in jax, with PyG and with DGL, on generated
graphs and on real ones (FOLDER/ogbn-arxiv.npz and web-cnr-2000.npz; left out without them). All are
checked to compute the same, then timed interleaved, each in a process of its own (`contenders/`).
PyG and DGL get virtual environments of their own, made on first use.

Results and picture are in `experiments/attention/`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contenders.arguments import add_arguments, parsed
from contenders.comparison import CONTENDERS, DisagreementError, Settings, compare
from contenders.graphs import PROBLEMS, write_case
from contenders.memory import available_bytes
from contenders.picture import draw
from contenders.table import table
from contenders.work import Absent

HERE = Path(__file__).parent / "attention"
ROUNDS = 5


def run_graph(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything about one graph."""
    problem = PROBLEMS[name]
    takes_part = problem.contenders or tuple(CONTENDERS)
    contenders = tuple(name for name in arguments.contenders if name in takes_part)
    settings = Settings(contenders, arguments.rounds, arguments.peers_folder)
    print(f"{name}: writing {problem.small if arguments.quick else problem.graph}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        case = write_case(problem, Path(folder), arguments.data, small=arguments.quick)
        print(f"  {case}", flush=True)
        started = time.monotonic()
        found = compare(case.kind, Path(folder), settings)
    return {
        "graph": problem.small if arguments.quick else problem.graph,
        **vars(case),
        "rounds": arguments.rounds,
        "wall_seconds": round(time.monotonic() - started, 1),
        "machine": machine(),
        **found,
    }


def machine() -> dict[str, Any]:
    """Where it ran."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "available_memory_bytes": available_bytes(),
        "platform": platform.platform(),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }


def stored(out: Path) -> dict[str, Any]:
    """The results so far."""
    path = out / "results.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(out: Path, name: str, result: dict[str, Any]) -> None:
    """Put one graph's result in its place among the stored ones, and draw them all."""
    graphs = stored(out).get("graphs", {}) | {name: result}
    results = {
        "command": "python experiments/attention.py --data FOLDER",
        "graphs": {name: graphs[name] for name in PROBLEMS if name in graphs},
    }
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, allow_nan=False)
    (out / "results.json").write_text(text + "\n", encoding="utf-8")
    draw(results, out / "attention.svg")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="The attention op against its peers.",
        epilog="Smoke runs, and runs of fewer contenders or rounds than usual, are stored only in "
        "a folder given by --out: they would take the place of better results.",
    )
    parser.add_argument("--data", type=Path, help="folder with the real graphs")
    parser.add_argument("--graphs", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    add_arguments(parser, list(CONTENDERS), ROUNDS)
    return parsed(parser, argv, list(CONTENDERS), ROUNDS, HERE)


def main() -> None:
    """Run what is asked for, and store each graph's result as soon as it is there."""
    arguments = parse()
    results: dict[str, Any] = {"graphs": {}}
    for name in arguments.graphs:
        try:
            result = run_graph(name, arguments)
        except Absent as reason:
            print(f"{name}: absent: {reason}", flush=True)
            continue
        except DisagreementError as error:
            sys.exit(f"{name}: {error}")
        results["graphs"][name] = result
        if arguments.out is not None:
            store(arguments.out, name, result)
    print(table(results))


if __name__ == "__main__":
    main()

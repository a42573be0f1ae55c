"""What happens to real runs, done to real processes: killed, stopped, stuck, preempted, disk full.

    python experiments/chaos.py [--rows disturb stuck ...] [--data FOLDER] [--short] [--seed 0]

Every row (`disturbances/`) starts runs of gtjax as a user would, as processes over gloo on the
loopback address, does something to them, and compares what is left with a run that nothing was done
to. `--short` does everything once or twice, in some minutes. Rows that fill a disk or make it
read-only mount a small file system and need root. FOLDER holds `ogbn-arxiv.npz`, for overhead and
speed. Results are in `experiments/chaos/results.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from disturbances import (
    damage,
    disk,
    losses,
    overhead,
    repeated,
    resumed,
    signals,
    slow,
    speedup,
    stuck,
)
from disturbances.runs import Chaos, Row

HERE = Path(__file__).parent / "chaos"
ROWS: dict[str, Row] = {
    "losses": losses.ROW,
    "disturb": signals.ROW,
    "stuck": stuck.ROW,
    "slow": slow.ROW,
    "resume": resumed.ROW,
    "damage": damage.ROW,
    "disk": disk.ROW,
    "overhead": overhead.ROW,
    "repeat": repeated.ROW,
    "speedup": speedup.ROW,
}


def main() -> None:
    """Do the rows that are asked for, store and print them."""
    parser = argparse.ArgumentParser(description="What happens to real runs.")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--data", type=Path, help="folder with ogbn-arxiv, for overhead and speed")
    parser.add_argument("--short", action="store_true", help="everything once or twice")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    path = arguments.out / "results.json"
    results: dict[str, Any] = {"rows": {}}
    if path.exists() and not arguments.short:
        results = json.loads(path.read_text(encoding="utf-8"))
    chaos = Chaos(arguments.short, arguments.data)
    for name in arguments.rows:
        chaos.random.seed(f"{arguments.seed} {name}")
        started = time.monotonic()
        found = ROWS[name].do(chaos)
        if found is None:
            continue
        found |= {"seconds": round(time.monotonic() - started), "seed": arguments.seed}
        found |= {"command": f"python experiments/chaos.py --rows {name} --seed {arguments.seed}"}
        found |= {"versions": versions(), "cores": os.cpu_count()}
        results["rows"][name] = found
        print(f"{name}: {json.dumps({k: v for k, v in found.items() if k != 'cases'})}", flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    if any(not row["held"] for row in results["rows"].values()):
        sys.exit(1)


def versions() -> dict[str, str]:
    """What this was done with."""
    packages = ("gtjax", "jax", "jaxlib", "orbax-checkpoint", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    return found | {"python": platform.python_version()}


def table(results: dict[str, Any]) -> str:
    """The rows that are stored, for the README."""
    found = results["rows"]
    lines = ["| what | wanted | seen |", "|---|---|---|"]
    for name, row in ROWS.items():
        if name in found:
            lines.append(f"| {row.what} | {row.wanted} | {row.seen(found[name])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

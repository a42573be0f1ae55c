"""How long one waits: for `import gtjax`, for help, and from `gtjax train` to its first step.

    python experiments/startup.py [--times 3]

A first start has an empty cache of compiled programs, a second one finds what the first has
compiled; `--no-keep-compiled` finds nothing. The first step is there when `metrics.jsonl`
has a line. Seconds of the processor, in all threads, are given beside those on the clock, since
other work on the machine changes the one much more than the other. Writes
`experiments/startup/results.json`: medians, all times, and the load of the machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "startup" / "results.json"
ROOT = Path(__file__).parents[1]
COMMAND = "import sys; from gtjax.cli.main import main; sys.exit(main(sys.argv[1:]))"
TICKS = os.sysconf("SC_CLK_TCK")
LIMIT_SECONDS = 300.0
PACKAGES = ("gtjax", "jax", "jaxlib", "flax", "orbax-checkpoint")


def spent(process: subprocess.Popen[Any]) -> float:
    """Seconds of the processor that a process has taken so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def timed(code: str, *arguments: str, cache: Path, until: Path | None = None) -> dict[str, float]:
    """Run until the end, or until a file has a line, and stop it then."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "GTJAX_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    busy = 0.0
    while time.perf_counter() - start < LIMIT_SECONDS:
        busy = max(busy, spent(process))
        if until is None and process.poll() is not None:
            break
        if until is not None and until.exists() and until.stat().st_size:
            break
        if until is not None and process.poll() is not None:
            raise RuntimeError(process.stderr.read() if process.stderr else "it ended")
        time.sleep(0.005)
    seconds = time.perf_counter() - start
    process.terminate()
    process.communicate()
    return {"seconds": round(seconds, 2), "processor": round(busy, 2)}


def first_step(folder: Path, cache: Path, number: int, *options: str) -> dict[str, float]:
    """From the command to the first step of a run of the default model and graph."""
    out = folder / f"run{number}-{len(list(folder.iterdir()))}"
    arguments = ("train", "--out", str(out), "--steps", "1", *options)
    return timed(COMMAND, *arguments, cache=cache, until=out / "metrics.jsonl")


def main() -> None:
    """Measure everything, in turn, so often."""
    parser = argparse.ArgumentParser(description="How long one waits for gtjax to start.")
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    found: dict[str, list[dict[str, float]]] = {}
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(times):
            cache = folder / f"cache{number}"
            cache.mkdir()
            measured = {
                "import gtjax": timed("import gtjax", cache=cache),
                "gtjax --help": timed(COMMAND, "--help", cache=cache),
                "gtjax train --help": timed(COMMAND, "train", "--help", cache=cache),
                "first step, first start": first_step(folder, cache, number),
                "first step, second start": first_step(folder, cache, number),
                "first step, nothing kept": first_step(folder, cache, number, "--no-keep-compiled"),
            }
            for what, one in measured.items():
                print(f"{what:<28}{one['seconds']:8.2f} s{one['processor']:8.2f} s", flush=True)
                found.setdefault(what, []).append(one)
            load.append(os.getloadavg()[0])
    result = {
        "medians": {
            what: {
                kind: statistics.median(one[kind] for one in all_of_it)
                for kind in ("seconds", "processor")
            }
            for what, all_of_it in found.items()
        },
        "all": found,
        "load": [round(each, 1) for each in load],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {each: importlib.metadata.version(each) for each in PACKAGES},
        "command": f"python experiments/startup.py --times {times}",
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

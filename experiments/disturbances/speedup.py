"""What a second process gains."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from typing import Any

from disturbances.runs import Chaos, Row, done, launch, result
from gtjax.distributed.supervisor import ENTRY


def speedup(chaos: Chaos) -> dict[str, Any]:
    """Two processes of one device and one core each against one, for a model that is wide."""
    times: dict[str, list[float]] = {}
    model = ("--model.hidden", "256", "--model.heads", "8", "--model.layers", "2")
    ways = {
        "one process": ("--strategy", "single"),
        "node_halo": ("--strategy", "node_halo", "--partitioner", "contiguous"),
    }
    with chaos.new_folder() as folder:
        for turn in range(chaos.times(2, 1)):
            for name, how in ways.items():
                run, log = folder / f"{name}-{turn}", folder / f"{name}-{turn}.log"
                common = ("--data", chaos.arxiv, "--steps", "4", "--eval-every", "100")
                command = ("train", *common, *model, "--out", str(run), *how)
                if name == "one process":
                    with log.open("wb") as file:
                        worker = subprocess.Popen(
                            ["taskset", "-c", "0", *ENTRY, *command], stdout=file, stderr=file
                        )
                else:
                    worker = launch(2, *command, log=log)
                code = done(worker, 900)
                assert code == 0, log.read_text()
                times.setdefault(name, []).append(result(run)["seconds_per_step"])
                print(name, times[name], flush=True)
                shutil.rmtree(run)
    medians = {name: statistics.median(each) for name, each in times.items()}
    best = min(medians, key=medians.__getitem__)
    ratio = medians["one process"] / medians[best]
    return {"seconds_per_step": medians, "best": best, "speedup": ratio, "held": ratio >= 1.6}


ROW = Row(
    "2 processes of 1 core against 1 process of 1 core, arxiv topology, hidden 256",
    "at least 1.6x",
    speedup,
    lambda r: f"{r['speedup']:.2f}x ({r['best']})",
)

"""What a second process gains."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

from disturbances.runs import Chaos, Row, done, launch, result
from gtjax.distributed.supervisor import ENTRY

MODELS = {
    "wide": ("--model.hidden", "256", "--model.heads", "8", "--model.layers", "2"),
    "default": (),
}
ALONE = "one process"
WAYS = {
    ALONE: ("--strategy", "single"),
    "node_halo contiguous": ("--strategy", "node_halo", "--partitioner", "contiguous"),
    "node_halo streaming": ("--strategy", "node_halo", "--partitioner", "streaming"),
}


def speedup(chaos: Chaos) -> dict[str, Any]:
    """Two processes of one device and one core each against one, several ways, in turns."""
    models = {}
    with chaos.new_folder() as folder:
        for model, options in MODELS.items():
            times: dict[str, list[float]] = {name: [] for name in WAYS}
            for _ in range(chaos.times(3, 1)):
                for name, how in WAYS.items():
                    times[name].append(_seconds_per_step(chaos, folder, name, (*options, *how)))
                    print(model, name, times[name], flush=True)
            medians = {name: statistics.median(each) for name, each in times.items()}
            best = min(medians, key=medians.__getitem__)
            models[model] = {
                "seconds_per_step": times,
                "best": best,
                "speedup": medians[ALONE] / medians[best],
            }
    most = max(each["speedup"] for each in models.values())
    return {"models": models, "held": most >= 1.6}


def _seconds_per_step(chaos: Chaos, folder: Path, name: str, options: tuple[str, ...]) -> float:
    run, log = folder / "run", folder / "log"
    common = ("--data", chaos.arxiv, "--steps", "4", "--eval-every", "100", "--out", str(run))
    command = ("train", *common, *options)
    if name == ALONE:
        with log.open("wb") as file:
            pinned = ["taskset", "-c", "0", *ENTRY, *command]
            worker = subprocess.Popen(pinned, stdout=file, stderr=file)
    else:
        worker = launch(2, *command, log=log)
    code = done(worker, 900)
    assert code == 0, log.read_text()
    seconds = result(run)["seconds_per_step"]
    shutil.rmtree(run)
    return seconds


ROW = Row(
    "2 processes of 1 core against 1 process of 1 core, arxiv topology",
    "at least 1.6x",
    speedup,
    lambda r: "; ".join(
        f"{name} model {each['speedup']:.2f}x ({each['best']})"
        for name, each in r["models"].items()
    ),
)

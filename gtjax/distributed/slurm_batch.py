"""The batch file that has SLURM run a command on several nodes, and continue it when a node fails.

A task a node, around each a supervisor; a node's GPUs all belong to its task. SLURM is told to ask
for an end some time before the limit, which saves, and to queue the job again when a node is lost:
the same command then continues the run that it finds.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gtjax.core.errors import UserError

MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
SLURM_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}")


@dataclass(frozen=True)
class Batch:
    """What SLURM is asked for."""

    slurm: bool = False
    """Write a batch file for SLURM and submit it, instead of starting processes here."""
    nodes: int = 1
    """With --slurm: nodes, a process each."""
    time: str | None = None
    """With --slurm: limit, such as 2h, 30m, 1d or SLURM's 1-12:00:00."""
    gpus_per_node: int | None = None
    """With --slurm: GPUs of each node; its process has all of them."""
    save_seconds: int = 120
    """With --slurm: seconds before the limit at which the run saves and ends."""
    sbatch: tuple[str, ...] = ()
    """With --slurm: more options of sbatch, such as partition=gpu account=me."""
    dry_run: bool = False
    """With --slurm: print the batch file, and submit nothing."""

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is at least 1; found {value}")
        if self.save_seconds < 0:
            raise ValueError(f"--save-seconds is not negative; found {self.save_seconds}")
        if self.time is not None:
            slurm_time(self.time)
        for option in self.sbatch:
            if not re.fullmatch(r"[a-z][a-z-]*(=\S+)?", option):
                raise ValueError(
                    f"--sbatch takes names and values, such as partition=gpu; found {option!r}"
                )
        unused = [
            f"--{name.replace('_', '-')}"
            for name, field in type(self).__dataclass_fields__.items()
            if not self.slurm and getattr(self, name) != field.default
        ]
        if unused:
            raise ValueError(f"{', '.join(unused)}: only with --slurm")


def slurm_time(text: str) -> str:
    """SLURM's way to write a limit: 120 (minutes) of "2h"."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", text):
        return str(max(1, round(float(found[1]) * MINUTES[found[2]])))
    if not SLURM_TIME.fullmatch(text):
        raise ValueError(f"--time is such as 2h, 30m, 1d or 1-12:00:00; found {text!r}")
    return text


def batch_file(batch: Batch, command: list[str], run: Path) -> str:
    """The text; `command` is the supervisor's, for each task."""
    options = [
        "job-name=gtjax",
        f"nodes={batch.nodes}",
        "ntasks-per-node=1",
        *([f"gpus-per-node={batch.gpus_per_node}"] if batch.gpus_per_node else []),
        *([f"time={slurm_time(batch.time)}"] if batch.time else []),
        f"signal=TERM@{batch.save_seconds}",  # asks the tasks to save and end before the limit
        "requeue",  # when a node is lost
        "open-mode=append",  # or what came before is lost when it is queued again
        f"output={log_of(run)}",
        *batch.sbatch,
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH --{option}" for option in options), ""]
    # A supervisor whose task has failed starts it again: SLURM is not to end the others.
    lines.append(f"exec srun --kill-on-bad-exit=0 {shlex.join(command)}")
    return "\n".join(lines) + "\n"


def log_of(run: Path) -> str:
    """Beside the folder of the run, where SLURM's %j stands for the number of the job."""
    return f"{run.parent / run.name}-slurm-%j.log"


def submit(text: str) -> str:
    """Hand the text to sbatch; returns the number of the job."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable"], input=text, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise UserError(
            "--slurm calls sbatch, which is not here. Run this where jobs are submitted, or add "
            "--dry-run and submit what it prints."
        ) from None
    if done.returncode:
        raise UserError(f"sbatch refuses the job: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]

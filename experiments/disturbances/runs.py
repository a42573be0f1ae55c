"""Runs of gtjax as a user starts them, and what they leave."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.distributed.supervisor import ENTRY
from gtjax.runs.checkpoint_files import read_manifest, steps_in

# Small, since every process compiles it; steps take a tenth of a second on two cores.
MODEL = ("--model.layers", "1", "--model.hidden", "16", "--model.heads", "4")
DATA = ("--data", "rmat:nodes=1000,edges=10e3")
STEPS = 20
INTERVAL = 4  # steps between checkpoints


class Chaos:
    """Runs in a folder of their own, and what they are compared with."""

    def __init__(self, short: bool, data: Path | None):
        self.short, self.data = short, data
        self.processes = 2 if short else 4
        self.random = random.Random()
        self.folder = Path(tempfile.mkdtemp(prefix="gtjax-chaos-"))

    def times(self, long: int, short: int) -> int:
        """How often to do something."""
        return short if self.short else long

    @property
    def arxiv(self) -> str:
        """The graph that time is measured on, or one of as many nodes and edges."""
        if self.data is None:
            return "rmat:nodes=169343,edges=1166243"
        return str(self.data / "ogbn-arxiv.npz")

    @contextlib.contextmanager
    def new_folder(self) -> Iterator[Path]:
        """For one run."""
        path = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def train_options(out: Path, *more: str) -> tuple[str, ...]:
    """A small run with a checkpoint every few steps."""
    every = ("--checkpoint-steps", str(INTERVAL), "--eval-every", "100", "--steps", str(STEPS))
    how = () if "--strategy" in more else ("--strategy", "node_halo")
    return ("train", *DATA, *MODEL, *every, "--out", str(out), *how, *more)


def start(*command: str, log: Path, code: str | None = None) -> subprocess.Popen:
    """A command of gtjax in the background, what it says in a file."""
    entry = ENTRY if code is None else (sys.executable, "-c", code)
    with log.open("ab") as file:
        return subprocess.Popen([*entry, *command], stdout=file, stderr=file)


def launch(processes: int, *command: str, log: Path) -> subprocess.Popen:
    """Under the supervisor."""
    return start(
        "launch", "--processes", str(processes), "--restarts", "9", "--", *command, log=log
    )


def done(process: subprocess.Popen, seconds: float = 300.0) -> int:
    """The exit code."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -999


def last_step(run: Path) -> int:
    """Of metrics.jsonl, whose last line may be half written."""
    path = run / "metrics.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    steps = re.findall(r'^\{"step": (\d+).*\}$', text, re.MULTILINE)
    return int(steps[-1]) if steps else 0


def final_hash(run: Path) -> list[str]:
    """Of every array of the newest checkpoint."""
    folder = run / "checkpoints"
    manifest = read_manifest(folder, steps_in(folder)[0])
    return [str(manifest["step"]), *(each["hash"] for each in manifest["arrays"])]


def result(run: Path) -> dict[str, Any]:
    """What the run left."""
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


def apart(found: list[float], wanted: list[float]) -> float:
    """The largest relative difference."""
    if len(found) != len(wanted):
        return float("inf")
    return max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(found, wanted, strict=True))


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it holds before the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def until_interrupted() -> Iterator[None]:
    """Ctrl-C ends a row early; what is done by then counts."""
    with contextlib.suppress(KeyboardInterrupt):
        yield


@dataclass(frozen=True)
class Row:
    """One line of the table: what is done to runs, what is wanted, and how what was seen is told.

    `do` gives what is stored; None where it cannot be done.
    """

    what: str
    wanted: str
    do: Callable[[Chaos], dict[str, Any] | None]
    seen: Callable[[dict[str, Any]], str]

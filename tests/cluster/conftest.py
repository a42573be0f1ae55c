"""A cluster for the tests here, and the run that nothing is done to."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gtjax.distributed.supervisor import free_port
from tests.cluster.slurm import Slurm, why_not

GTJAX = str(Path(sys.executable).with_name("gtjax"))
MODEL = ("--model", "gcn", "--model.hidden", "4", "--model.layers", "1", "--eval-every", "20")
SETTINGS = ("--strategy", "node_halo", "--checkpoint-steps", "20", "--optim.schedule", "constant")
PATIENT = ("--join-seconds", "300", "--watchdog-seconds", "600")  # other things may run here
DATA = ("--data", "synthetic-citation:nodes=100")
TRAIN = ("train", *DATA, *MODEL, *SETTINGS, *PATIENT, "--steps", "200")
WORKER = {"GTJAX_SUPERVISED": "1"}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def installed():
    """Debian's packages, or a reason why there are none."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm(installed):
    """Two nodes; the path of munge's socket has to be short."""
    folder = Path(tempfile.mkdtemp(prefix="gtjax-slurm-"))
    folder.chmod(0o755)
    cluster = Slurm(folder, [free_port() for _ in range(3)])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Losses of the run, by two processes on this machine, to which nothing is done."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = subprocess.run(
        [GTJAX, "launch", "--no-pin", "--processes", "2", "--", *TRAIN, "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return losses(out)


def losses(run: Path) -> list[float]:
    """Of every step, bit by bit."""
    return json.loads((run / "result.json").read_text())["losses"]


def steps_taken(run: Path) -> int:
    """As far as the metrics tell."""
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.is_file() else 0


def pids(run: Path, **environment: str) -> list[int]:
    """Processes that train for this run and have these variables."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            known = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        wanted = {f"{name}={value}".encode() for name, value in environment.items()}
        if str(run).encode() in words and wanted <= set(known) and folder.name.isdecimal():
            found.append(int(folder.name))
    return found


def send(number: int, run: Path, **environment: str) -> None:
    """A signal to those processes."""
    found = pids(run, **environment)
    assert found, "no such process"
    for pid in found:
        os.kill(pid, number)


def until(holds, seconds: float = 300.0, said=lambda: "") -> None:
    """Wait; many things may run at once here."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, said()
        time.sleep(0.05)


@contextlib.contextmanager
def held(run: Path, **environment: str) -> Iterator[None]:
    """Once there is a checkpoint: a moment in which neither one process nor others take steps."""
    until(lambda: steps_taken(run) > 25)
    send(signal.SIGSTOP, run, **environment)
    try:
        yield
    finally:
        for pid in pids(run, **environment):
            os.kill(pid, signal.SIGCONT)

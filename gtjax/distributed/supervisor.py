"""Starts the processes of a run, and starts them again from the last checkpoint when one is lost.

    gtjax launch --processes 4 -- train --data ogbn-arxiv

On one machine it starts all processes, with a coordinator on the loopback address. Under SLURM or
Kubernetes each task runs it around its own process, which finds the others as jax does. Free of
jax: it holds no devices and no memory worth speaking of.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gtjax.distributed.exits import FAILED, FINISHED, MISTAKE, SUPERVISED
from gtjax.distributed.failures import note_failure
from gtjax.remote.address import address_of
from gtjax.remote.run_store import RunStore

POLL_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 60.0
ENTRY = (sys.executable, "-c", "import sys; from gtjax.cli.main import main; sys.exit(main())")


@dataclass(frozen=True)
class Job:
    """What to run: first `command`, later `again`, once there is something to continue."""

    command: tuple[str, ...]
    again: tuple[str, ...]
    run: Path | None  # the folder; None for what leaves none, which is not started again


@dataclass(frozen=True)
class Local:
    """Processes on this machine; None of them: one, that finds the others by itself."""

    processes: int | None = None
    devices: int | None = None  # of each process
    pin: bool = True


class Supervisor:
    """Runs a job until it is finished, cannot be, or was asked to stop."""

    def __init__(
        self,
        job: Job,
        local: Local,
        *,
        restarts: int,
        grace: float,
        backoff: float = 1.0,
        say: Callable[[str], None],
        entry: tuple[str, ...] = ENTRY,
    ):
        self._job, self._local, self._say, self._entry = job, local, say, entry
        self._restarts, self._grace, self._backoff = restarts, grace, backoff
        self._workers: list[subprocess.Popen] = []
        self._signals, self._starts = 0, 0

    def run(self) -> int:
        """Returns the exit code for the whole."""
        failures = 0
        with self._handling_signals():
            while True:
                before = newest_checkpoint(self._job.run)
                code, why = self._attempt()
                if code in (FINISHED, MISTAKE) or self._signals:
                    return code
                failures = 1 if newest_checkpoint(self._job.run) > before else failures + 1
                if self._job.run is None or failures > self._restarts:
                    then = f"giving up after {_times(failures)} without a new checkpoint"
                    self._tell(why, then)
                    return FAILED
                seconds = min(LONGEST_BACKOFF_SECONDS, self._backoff * 2.0 ** (failures - 1))
                where = _from_where(newest_checkpoint(self._job.run))
                self._tell(why, f"starting again in {seconds:g} s from {where}")
                self._sleep(seconds)
                if self._signals:
                    return FAILED

    def _tell(self, why: str, then: str) -> None:
        """People, and the folder of the run."""
        self._say(f"{why}; {then}")
        note_failure(self._job.run, why, then)

    def _attempt(self) -> tuple[int, str]:
        """Start all processes, and wait until none is left."""
        self._start()
        try:
            while not (failed := self._failed()) and self._alive():
                time.sleep(POLL_SECONDS)
            if not failed:
                return FINISHED, ""
            if all(self._workers[index].returncode == -signal.SIGTERM for index in failed):
                self._signalled(signal.SIGTERM, None)  # it came too early to be heard
            why = ", ".join(self._what_became_of(index) for index in failed)
            # The others notice by themselves, and end; who is stuck does not.
            deadline = time.monotonic() + self._grace
            while self._alive() and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        finally:
            self._kill()
        codes = [worker.returncode for worker in self._workers]
        if MISTAKE in codes:
            return MISTAKE, why
        return FAILED, why

    def _start(self) -> None:
        count = self._local.processes
        begun = self._job.run is not None and is_begun(self._job.run)
        command = self._job.again if begun else self._job.command
        place: tuple[str, ...] = ()
        if count is not None:
            place = ("--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", str(count))
        if self._local.devices is not None:
            place += ("--devices-per-process", str(self._local.devices))
        self._starts += 1
        environment = os.environ | {SUPERVISED: str(self._starts)}
        self._workers = []
        for index in range(count or 1):
            which = () if count is None else ("--process-id", str(index))
            worker = subprocess.Popen(
                # A session of its own: Ctrl-C reaches the supervisor, which passes it on once.
                [*self._entry, *command, *place, *which],
                env=environment,
                start_new_session=True,
            )
            self._workers.append(worker)
            if self._local.pin and count is not None:
                _pin(worker.pid, index, count)
        if self._signals:  # that came while there was nobody to pass it to
            self._pass_on(signal.SIGTERM)

    def _alive(self) -> list[subprocess.Popen]:
        return [worker for worker in self._workers if worker.poll() is None]

    def _failed(self) -> list[int]:
        return [
            i for i, worker in enumerate(self._workers) if worker.poll() not in (None, FINISHED)
        ]

    def _what_became_of(self, index: int) -> str:
        worker = self._workers[index]
        code = worker.returncode
        end = f"ended with code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                end = f"was ended by {signal.Signals(-code).name}"
        return f"process {index} (pid {worker.pid}) {end}"

    def _kill(self) -> None:
        for worker in self._alive():
            worker.kill()
        for worker in self._workers:
            worker.wait()

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._signals:
            time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        before: dict[int, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, self._signalled)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """The first asks all to save and end; the second ends them."""
        self._signals += 1
        self._pass_on(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _pass_on(self, number: int) -> None:
        for worker in self._alive():
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(number)


def is_begun(run: Path) -> bool:
    """Whether there is a run to be continued."""
    if (address := address_of(run)) is not None:
        return RunStore.exists(address)
    return (run / "config.json").is_file()


def newest_checkpoint(run: Path | None) -> int:
    """Step of the newest checkpoint in the folder of a run; -1 if there is none."""
    if run is None:
        return -1
    if (address := address_of(run)) is not None:
        return max(RunStore.steps_at(address), default=-1)
    if not (run / "checkpoints").is_dir():
        return -1
    names = (path.name for path in (run / "checkpoints").iterdir())
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def free_port() -> int:
    """A port of the loopback address that nobody uses at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _pin(pid: int, index: int, count: int) -> None:
    """Its own cores for each process where there are enough: threads then do not wait in line."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = sorted(os.sched_getaffinity(0))
    if count <= len(cores):
        with contextlib.suppress(OSError):  # it may be gone already
            os.sched_setaffinity(
                pid, cores[index * len(cores) // count : (index + 1) * len(cores) // count]
            )


def _from_where(step: int) -> str:
    return f"the checkpoint of step {step}" if step >= 0 else "the beginning"


def _times(failures: int) -> str:
    return "1 failure" if failures == 1 else f"{failures} failures"

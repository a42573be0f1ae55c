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
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gtjax.distributed.exits import FAILED, FINISHED, MISTAKE
from gtjax.distributed.failures import note_failure
from gtjax.distributed.workers import ENTRY, POLL_SECONDS, Workers
from gtjax.remote.address import address_of
from gtjax.remote.run_store import RunStore

LONGEST_BACKOFF_SECONDS = 60.0


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
        self._job, self._local, self._say = job, local, say
        self._restarts, self._grace, self._backoff = restarts, grace, backoff
        self._workers, self._starts = Workers(entry), 0

    def run(self) -> int:
        """Returns the exit code for the whole."""
        failures = 0
        with self._workers.hearing_signals():
            while True:
                before = newest_checkpoint(self._job.run)
                code, why = self._attempt()
                if code in (FINISHED, MISTAKE) or self._workers.signals:
                    return code
                failures = 1 if newest_checkpoint(self._job.run) > before else failures + 1
                if self._job.run is None or failures > self._restarts:
                    self._tell(why, giving_up(failures))
                    return FAILED
                seconds = backoff_seconds(self._backoff, failures)
                where = from_where(newest_checkpoint(self._job.run))
                self._tell(why, f"starting again in {seconds:g} s from {where}")
                self._workers.sleep(seconds)
                if self._workers.signals:
                    return FAILED

    def _tell(self, why: str, then: str) -> None:
        """People, and the folder of the run."""
        self._say(f"{why}; {then}")
        note_failure(self._job.run, why, then)

    def _attempt(self) -> tuple[int, str]:
        """Start all processes, and wait until none is left."""
        workers = self._workers
        self._start()
        try:
            while not (failed := workers.failed) and workers.alive:
                time.sleep(POLL_SECONDS)
            if not failed:
                return FINISHED, ""
            if all(workers.codes[index] == -signal.SIGTERM for index in failed):
                workers.asked_to_stop()  # it came too early to be heard
            why = ", ".join(workers.what_became_of(index, f"process {index}") for index in failed)
            # The others notice by themselves, and end; who is stuck does not.
            workers.wait(self._grace)
        finally:
            workers.kill()
        return MISTAKE if MISTAKE in workers.codes else FAILED, why

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
        which = [()] if count is None else [("--process-id", str(i)) for i in range(count)]
        pids = self._workers.start([(*command, *place, *each) for each in which], self._starts)
        if self._local.pin and count is not None:
            for index, pid in enumerate(pids):
                _pin(pid, index, count)


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


def free_port(address: str = "127.0.0.1") -> int:
    """A port of the loopback address, or another of this host, that nobody uses at the moment."""
    with socket.socket() as one:
        one.bind((address, 0))
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


def backoff_seconds(first: float, failures: int) -> float:
    """How long to wait before the next start: longer each time."""
    return min(LONGEST_BACKOFF_SECONDS, first * 2.0 ** (failures - 1))


def from_where(step: int) -> str:
    """What is started from, in words, given the step of the newest checkpoint."""
    return f"the checkpoint of step {step}" if step >= 0 else "the beginning"


def giving_up(failures: int) -> str:
    """In words."""
    times = "1 failure" if failures == 1 else f"{failures} failures"
    return f"giving up after {times} without a new checkpoint"

"""Compares the contenders on one case: all of them loaded, one of them running, round by round."""

from __future__ import annotations

import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contenders.case import TOLERANCE
from contenders.environments import PEERS, interpreter
from contenders.kinds import OP_KINDS
from contenders.process import Worker, require_memory
from contenders.work import Absent

REFERENCE = "xla"  # plain XLA, tested against a dense oracle in tests/kernels


class DisagreementError(Exception):
    """A contender computed something else than the reference."""


@dataclass(frozen=True)
class Contender:
    """What is compared, under which name."""

    title: str
    code: str  # what its process is told
    cores: int | None = None  # all, if None
    kinds: tuple[str, ...] = (*OP_KINDS, "step")
    tolerance: float = TOLERANCE


OURS = "cpu"  # what ratios are to
CONTENDERS = {
    "cpu": Contender("gtjax cpu", "cpu"),
    "cpu-1": Contender("gtjax cpu, 1 thread", "cpu", cores=1, kinds=("attention",)),
    "cpu-ordered": Contender("gtjax cpu, reordered", "cpu-ordered", kinds=("attention", "step")),
    # Numbers of 8 bits, and so are the results.
    "cpu-bf16": Contender("gtjax cpu, bf16", "cpu-bf16", kinds=("attention",), tolerance=2e-2),
    "xla": Contender("gtjax xla", "xla"),
    "segment": Contender("jax segment ops", "segment", kinds=("attention",)),
    "dgl": Contender("DGL", "dgl"),
    "pyg": Contender("PyG", "pyg"),
    "gather": Contender("gather bound", "gather", kinds=tuple(OP_KINDS)),
}


@dataclass(frozen=True)
class Settings:
    """How to compare."""

    contenders: tuple[str, ...]
    rounds: int
    peers_folder: Path


def compare(kind: str, folder: Path, settings: Settings) -> dict[str, Any]:
    """Check and time every contender that can run: `{"contenders": ..., "absent": ...}`."""
    field = _Field(folder)
    try:
        field.start([REFERENCE], settings)
        if REFERENCE in field.absent:
            raise RuntimeError(f"the reference does not run: {field.absent[REFERENCE]}")
        field.workers[REFERENCE].ask("store reference")
        if REFERENCE not in settings.contenders:
            field.leave(REFERENCE)
        others = [name for name in settings.contenders if name != REFERENCE]
        field.start([name for name in others if kind in CONTENDERS[name].kinds], settings)
        operations = ["step"] if kind == "step" else ["forward", "both"]
        field.each(lambda name, worker: _qualify(name, worker, field.records[name], operations[-1]))
        for number in range(settings.rounds):
            for operation in operations:
                field.each(
                    lambda name, worker, operation=operation: field.time(name, worker, operation),
                    order=random.Random(f"{number} {operation}"),
                )
            print(f"  round {number + 1} of {settings.rounds}: {field.latest()}", flush=True)
        return field.outcome(settings.contenders)
    finally:
        field.close()


def _qualify(name: str, worker: Worker, record: dict[str, Any], operation: str) -> None:
    """Warm up, check the results against the reference's, and measure the memory of one run."""
    require_memory(record["needs_bytes"])
    record["distances"] = worker.ask("check")["distances"]
    for array, distance in record["distances"].items():
        if not distance <= CONTENDERS[name].tolerance:
            raise DisagreementError(
                f"{name} computes what {REFERENCE} does to {CONTENDERS[name].tolerance}; "
                f"its {array} is off by "
                f"{distance:.3g}"
            )
    record["peak"] = worker.ask("memory", operation)["peak"]
    print(f"  {name}: agrees; peak {_megabytes(record['peak'])}", flush=True)


class _Field:
    """The contenders that are still in the race, and what is known of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.workers: dict[str, Worker] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.absent: dict[str, str] = {}

    def start(self, names: list[str], settings: Settings) -> None:
        """Start them side by side, since nothing is timed yet, and wait until all are ready."""
        for name in names:
            contender, python = CONTENDERS[name], Path(sys.executable)
            try:
                if contender.code in PEERS:
                    python = interpreter(contender.code, settings.peers_folder)
            except Absent as reason:
                self.leave(name, str(reason))
                continue
            self.workers[name] = Worker(contender.code, python, self.folder, contender.cores)
        for name in names:
            if name in self.workers:
                try:
                    self.records[name] = {**self.workers[name].ready(), "seconds": {}}
                except Absent as reason:
                    self.leave(name, str(reason))

    def leave(self, name: str, reason: str | None = None) -> None:
        self.records.pop(name, None)
        worker = self.workers.pop(name, None)
        if worker is not None:
            worker.close()
        if reason is not None:
            self.absent[name] = reason
            print(f"  {name}: absent: {reason}", flush=True)

    def each(self, act: Any, order: random.Random | None = None) -> None:
        """Let them act one after the other, in an order of its own each time if one is given.

        Who ran before matters: what is left of memory in large pieces, and in the caches, is its
        doing. In a fixed order one contender would always pay for the same neighbour.
        """
        names = list(self.workers)
        if order is not None:
            order.shuffle(names)
        for name in names:
            try:
                act(name, self.workers[name])
            except Absent as reason:
                self.leave(name, str(reason))

    def time(self, name: str, worker: Worker, operation: str) -> None:
        seconds = worker.ask("time", operation)["seconds"]
        self.records[name]["seconds"].setdefault(operation, []).append(seconds)

    def latest(self) -> str:
        return ", ".join(
            f"{name} {' + '.join(f'{times[-1]:.3g}' for times in record['seconds'].values())} s"
            for name, record in self.records.items()
        )

    def outcome(self, order: tuple[str, ...]) -> dict[str, Any]:
        for record in self.records.values():
            record.pop("operations")
            record["median_seconds"] = {
                operation: statistics.median(times)
                for operation, times in record["seconds"].items()
            }
        found = {name: self.records[name] for name in order if name in self.records}
        return {"contenders": found, "absent": self.absent}

    def close(self) -> None:
        for name in list(self.workers):
            self.leave(name)


def _megabytes(peak: dict[str, Any]) -> str:
    return "unknown" if peak["bytes"] is None else f"{peak['bytes'] / 1e6:.0f} MB"

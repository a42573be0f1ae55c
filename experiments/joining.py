"""Ways of joining wrong, by real processes: what each says, and after how long it ends.

    python experiments/joining.py [--only NAME ...] [--join-seconds 60]

Every case starts `gtjax train` two or three times, as on two or three hosts, with one thing wrong;
hosts are told apart by folders to work in and by what Python finds there. A case holds if all
processes end by themselves with an error, and if one of them says what is wrong. Seconds are from
the first word of a process. Results are in `experiments/joining/results.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.distributed.authority import make_certificates
from gtjax.distributed.supervisor import ENTRY, free_port

STORED = Path(__file__).parent / "joining" / "results.json"
HANG_SECONDS = 120.0  # beyond the limit, after which a process counts as hanging
SMALL = ("--data", "synthetic-citation:nodes=100", "--model", "gcn", "--model.hidden", "4")
WAYS: dict[str, tuple[str, str, Callable[[Hosts], None]]] = {}


@dataclass
class Process:
    """One that was started, and what became of it."""

    popen: subprocess.Popen[str]
    lines: list[tuple[float, str]] = dataclasses.field(default_factory=list)  # when, and what
    end: float | None = None

    def read(self) -> None:
        """Until it ends."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append((time.monotonic(), line.rstrip()))
        self.popen.wait()
        self.end = time.monotonic()


class Hosts:
    """Folders that stand for hosts, and the processes on them."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds, self.port = folder, seconds, free_port()
        self.processes: list[Process] = []
        self.threads: list[threading.Thread] = []
        self.open = contextlib.ExitStack()

    def host(self, number: int) -> Path:
        """Where the processes of a host work."""
        path = self.folder / f"host-{number}"
        path.mkdir(exist_ok=True)
        return path

    def start(
        self,
        index: int,
        *options: str,
        count: int = 2,
        at: str | None = None,
        command: tuple[str, ...] = ("train", *SMALL, "--steps", "3"),
        out: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start a process with this number on the host of this number."""
        words = [*command, "--coordinator", at or f"127.0.0.1:{self.port}"]
        words += ["--num-processes", str(count), "--process-id", str(index)]
        words += ["--join-seconds", str(self.seconds), *options]
        if command[0] == "train":
            words += ["--out", out or str(self.folder / "run")]
        known = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | (environment or {})
        known.pop("GTJAX_SUPERVISED", None)
        popen = subprocess.Popen(
            [*ENTRY, *words],
            cwd=self.host(index),
            env=known,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(Process(popen))
        thread = threading.Thread(target=self.processes[-1].read, daemon=True)
        thread.start()
        self.threads.append(thread)

    def elsewhere(self, files: dict[str, str]) -> dict[str, str]:
        """Environment of a host where Python finds these files first."""
        path = self.folder / "python"
        for name, text in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text, encoding="utf-8")
        return {"PYTHONPATH": os.pathsep.join([str(path), *sys.path])}


def way(what: str, says: str) -> Callable[[Callable[[Hosts], None]], Callable[[Hosts], None]]:
    """Enter a case with what it is, and words that the error has to have."""

    def enter(start: Callable[[Hosts], None]) -> Callable[[Hosts], None]:
        WAYS[start.__name__] = (what, says, start)
        return start

    return enter


@way("the coordinator's name does not resolve", "the name does not resolve")
def unknown_name(hosts: Hosts) -> None:
    """Both look for it."""
    for index in range(2):
        hosts.start(index, at=f"no-such-host.invalid:{hosts.port}")


@way("the port is taken by another program", "cannot listen at port")
def port_taken(hosts: Hosts) -> None:
    """One that listens, and says nothing."""
    hosts.open.enter_context(socket.create_server(("127.0.0.1", hosts.port)))
    for index in range(2):
        hosts.start(index)


@way("connection refused: process 0 was not started", "connection refused")
def refused(hosts: Hosts) -> None:
    """Nobody listens."""
    hosts.start(1)


@way("what is sent is dropped, as by a firewall", "a firewall may drop what is sent")
def dropped(hosts: Hosts) -> None:
    """A queue that is full does not answer either."""
    full = hosts.open.enter_context(socket.socket())
    full.bind(("127.0.0.1", hosts.port))
    full.listen(0)
    for _ in range(4):
        one = hosts.open.enter_context(socket.socket())
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", hosts.port))
    hosts.start(1)


@way("one of three never comes", "process 2 of 3 did not come")
def missing(hosts: Hosts) -> None:
    """Two wait for it."""
    for index in range(2):
        hosts.start(index, count=3)


@way("versions of jax differ", "all processes need the same jax")
def versions(hosts: Hosts) -> None:
    """Of two hosts."""
    other = {"jax-0.9.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: jax\nVersion: 0.9.0\n"}
    hosts.start(0)
    hosts.start(1, environment=hosts.elsewhere(other))


@way("another number of processes", "Start all with the same --num-processes")
def count(hosts: Hosts) -> None:
    """Two or three."""
    hosts.start(0, count=2)
    hosts.start(1, count=3)


@way("two processes with the same number", "Give each its own --process-id")
def twice(hosts: Hosts) -> None:
    """Of three."""
    for index in (0, 1, 1):
        hosts.start(index, count=3)


@way("clocks an hour apart", "clocks of hosts may be")
def clocks(hosts: Hosts) -> None:
    """Python starts with a clock that is ahead."""
    ahead = "import time\nnow = time.time\ntime.time = lambda: now() + 3600\n"
    hosts.start(0)
    hosts.start(1, environment=hosts.elsewhere({"sitecustomize.py": ahead}))


@way("unequal devices", "every process needs as many devices")
def devices(hosts: Hosts) -> None:
    """One and two."""
    for index in range(2):
        hosts.start(index, "--devices-per-process", str(1 + index))


@way("the folder of the run is not seen by one host", "does not see the folder of runs")
def run_folder(hosts: Hosts) -> None:
    """The same path, of another disk."""
    for index in range(2):
        hosts.start(index, out="run")


@way("the data is not seen by one host, and it has to read it", "gtjax: process 1 on")
def data(hosts: Hosts) -> None:
    """A path that only the first has."""
    import gtjax

    graph = gtjax.load("synthetic-citation:nodes=100")
    gtjax.save_npz(graph, hosts.host(0) / "graph.npz")
    command = ("train", "--data", "graph.npz", *SMALL[2:], "--steps", "3")
    for index in range(2):
        hosts.start(index, "--batching", "neighbours", command=command)


@way("the run to resume is not seen by one host", "not the folder of a run")
def resumed(hosts: Hosts) -> None:
    """Only the first has it."""
    path = hosts.host(0) / "run"
    path.mkdir()
    from gtjax.runs.config import TrainConfig, to_mapping

    (path / "config.json").write_text(json.dumps(to_mapping(TrainConfig())), encoding="utf-8")
    for index in range(2):
        hosts.start(index, command=("resume", "run"))


@way("certificates of another authority", "certificate is refused")
def authority(hosts: Hosts) -> None:
    """The first has one, the second another."""
    for index in range(2):
        folder = hosts.host(index)
        make_certificates(folder, ("127.0.0.1",), 1)
        hosts.start(index, *_mtls(folder))


@way("mTLS in one process only", "did not come")
def half_secure(hosts: Hosts) -> None:
    """The first has certificates, the second none."""
    make_certificates(hosts.host(0), ("127.0.0.1",), 1)
    hosts.start(0, *_mtls(hosts.host(0)))
    hosts.start(1)


def _mtls(folder: Path) -> tuple[str, ...]:
    files = {"cert": "127.0.0.1.pem", "key": "127.0.0.1-key.pem", "ca": "ca.pem"}
    return tuple(w for name, file in files.items() for w in (f"--mtls-{name}", str(folder / file)))


@contextmanager
def folder() -> Iterator[Path]:
    """That is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="gtjax-joining-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def tried(name: str, seconds: float) -> dict[str, Any]:
    """What became of one case."""
    _, says, start = WAYS[name]
    with folder() as path:
        hosts = Hosts(path, seconds)
        with hosts.open:
            start(hosts)
            end = time.monotonic() + seconds + HANG_SECONDS
            for thread in hosts.threads:
                thread.join(max(0.0, end - time.monotonic()))
        hanging = [each for each in hosts.processes if each.end is None]
        for each in hanging:
            each.popen.kill()
        here = socket.gethostname()
        codes = [each.popen.poll() for each in hosts.processes]
        said = [
            (when - each.lines[0][0], line)
            for each in hosts.processes
            for when, line in each.lines
            if says in line
        ]
        took = [each.end - each.lines[0][0] for each in hosts.processes if each.end and each.lines]
        return {
            "held": not hanging and bool(said) and all(codes),
            "named_after": round(min((when for when, _ in said), default=0.0), 1),
            "ended_after": round(max(took, default=0.0), 1),
            "hanging": len(hanging),
            "codes": codes,
            "said": said[-1][1].replace(str(path), "").replace(f"on {here}", "on HOST")
            if said
            else None,
            "lines": [] if said else [each.lines[-3:] for each in hosts.processes],
        }


def table(results: dict[str, Any]) -> str:
    """The cases that are stored, for the README."""
    lines = ["| what is wrong | named, s | all ended, s | what is said |", "|---|---|---|---|"]
    for name, found in results["ways"].items():
        said = (found["said"] or "").removeprefix("gtjax: ").replace("|", "\\|")
        named = f"{found['named_after']:g}" if found["held"] else "**not**"
        lines.append(f"| {WAYS[name][0]} | {named} | {found['ended_after']:g} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Try the cases that are asked for, store and print them."""
    parser = argparse.ArgumentParser(description="Ways of joining wrong.")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--join-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"ways": {}}
    if STORED.exists():
        results = json.loads(STORED.read_text(encoding="utf-8"))
    for name in arguments.only:
        found = tried(name, arguments.join_seconds)
        print(f"{name}: {json.dumps(found)}", flush=True)
        results["ways"][name] = found | {"join_seconds": arguments.join_seconds}
        results["ways"] = {each: results["ways"][each] for each in WAYS if each in results["ways"]}
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    if not all(results["ways"][name]["held"] for name in arguments.only):
        sys.exit(1)


if __name__ == "__main__":
    main()

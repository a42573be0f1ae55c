"""Hosts that come and go: 4 to 3 to 2 to 4 processes, again and again, and the losses of the run.

    python experiments/elastic.py [--runs 5] [--times 2] [--seed 0]

Four supervisors (`gtjax launch --elastic 2:4`) on one machine stand for four hosts. One is lost,
then another, then two come; that is one time. Who is lost is drawn, the leader and the host of
process 0 too, and how: all of its processes killed, its supervisor alone killed, or asked to leave.
After the last time the run is ended, resumed by `--elastic` again and finished. Its losses are
compared, step by step, with those of a run of as many steps on 4 processes that nothing was done
to. Every run that is done is stored at once in `experiments/elastic/results.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from disturbances.runs import apart, last_step, wait_until

from gtjax.distributed.meeting import Meeting
from gtjax.distributed.workers import ENTRY
from gtjax.runs.run_folder import versions

STORED = Path(__file__).parent / "elastic" / "results.json"
SMALL = ("--data", "synthetic-citation:nodes=100", "--model", "gcn", "--model.hidden", "4")
# Of the constant schedule a step does not depend on how many there will be.
HOW = ("--strategy", "node_halo", "--optim.schedule", "constant", "--eval-every", "1000000")
SECONDS = 5.0  # that a host has to come back
PATIENCE_SECONDS = 300.0  # that the experiment has for each change
LEAST_STEPS = 3  # between two changes
TOLERANCE = 1e-5


class Cluster:
    """Supervisors that stand for hosts."""

    def __init__(self, folder: Path):
        self.folder, self.run = folder, folder / "run"
        self.hosts: list[subprocess.Popen[bytes]] = []
        self.started = 0

    def start(self, *command: str) -> None:
        """One more host."""
        words = ["launch", "--elastic", "2:4", "--elastic-seconds", str(SECONDS)]
        words += ["--restarts", "9", "--", *command]
        with (self.folder / f"{self.started}.log").open("wb") as log:
            self.hosts.append(subprocess.Popen([*ENTRY, *words], stdout=log, stderr=log))
        self.started += 1

    def children(self, host: subprocess.Popen[bytes]) -> list[int]:
        """Processes that a supervisor has started."""
        path = Path(f"/proc/{host.pid}/task/{host.pid}/children")
        return [int(pid) for pid in path.read_text(encoding="ascii").split()]

    def lose(self, host: subprocess.Popen[bytes], how: str) -> None:
        """In one of three ways."""
        pids = [host.pid]
        if how == "all killed":
            pids += self.children(host)
        for pid in pids:
            os.kill(pid, signal.SIGTERM if how == "asked to leave" else signal.SIGKILL)
        self.hosts.remove(host)
        host.wait(PATIENCE_SECONDS)

    def running(self, generation: int, count: int, above: int) -> bool:
        """Whether a later generation of so many has taken a few steps."""
        newest = Meeting.beside(self.run).newest()
        return (
            newest is not None
            and newest.number > generation
            and len(newest.members) == count
            and last_step(self.run) >= max(above, newest.checkpoint) + LEAST_STEPS
        )

    def end(self) -> None:
        """Whatever is left."""
        for host in self.hosts:
            with contextlib.suppress(OSError):
                for pid in (*self.children(host), host.pid):
                    os.kill(pid, signal.SIGKILL)
            host.wait()


def train(run: Path, steps: int) -> tuple[str, ...]:
    """The command of all."""
    every = ("--checkpoint-seconds", "3", "--steps", str(steps))
    return ("train", *SMALL, *HOW, *every, "--out", str(run))


def tried(folder: Path, times: int, dice: random.Random) -> dict[str, Any]:
    """One run, to which it is done so many times."""
    cluster, changes = Cluster(folder), []
    long = train(cluster.run, 1_000_000)
    generation = 0
    try:
        for _ in range(4):
            cluster.start(*long)
        plan: list[int | str] = [4, *(to for _ in range(times) for to in (3, 2, 4))]
        for to in plan:
            began, step, how = time.monotonic(), last_step(cluster.run), "begins"
            if to == 4 and generation:
                how = "two come"
                for _ in range(2):
                    cluster.start(*long)
            elif generation:
                how = dice.choice(("all killed", "supervisor killed", "asked to leave"))
                cluster.lose(dice.choice(cluster.hosts), how)
            held = wait_until(
                lambda g=generation, c=to, s=step: cluster.running(g, int(c), s), PATIENCE_SECONDS
            )
            newest = Meeting.beside(cluster.run).newest()
            generation = 0 if newest is None else newest.number
            seconds = round(time.monotonic() - began, 1)
            change = {"to": to, "how": how, "held": held, "seconds": seconds, "from_step": step}
            changes.append(change | {"steps": last_step(cluster.run)})
            print(changes[-1], flush=True)
            if not held:
                for log in sorted(folder.glob("*.log")):
                    print(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
                return {"changes": changes, "finished": False, "apart": None}
        for host in cluster.hosts:
            host.send_signal(signal.SIGTERM)
        stopped = [host.wait(PATIENCE_SECONDS) for host in cluster.hosts]
        cluster.hosts.clear()
        steps = last_step(cluster.run) + 10
        for _ in range(4):
            cluster.start("resume", str(cluster.run), "--steps", str(steps))
        codes = [host.wait(PATIENCE_SECONDS) for host in cluster.hosts]
        cluster.hosts.clear()
    finally:
        cluster.end()
    undisturbed = folder / "undisturbed"
    done = subprocess.run(
        [*ENTRY, "launch", "--processes", "4", "--no-pin", "--", *train(undisturbed, steps)],
        capture_output=True,
    )
    found, wanted = losses(cluster.run), losses(undisturbed)
    return {
        "changes": changes,
        "stopped_codes": stopped,
        "codes": codes,
        "undisturbed_code": done.returncode,
        "finished": codes == [0] * 4 and len(found) == steps,
        "steps": steps,
        "left_over": Meeting.beside(cluster.run).folder.exists(),
        "final_loss": found[-1],
        "final_loss_undisturbed": wanted[-1],
        "apart": apart(found, wanted),
        "apart_at_the_end": apart(found[-1:], wanted[-1:]),
    }


def losses(run: Path) -> list[float]:
    """Of every step, as the run has told them."""
    text = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line)["loss"] for line in text.splitlines()]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def table(results: dict[str, Any]) -> str:
    """What was done and seen, for the README."""
    runs = results["runs"]
    whole = [run for run in runs if run["finished"]]
    changes = [change for run in runs for change in run["changes"]]
    times = sum(change["to"] == 4 and change["how"] != "begins" for change in changes)
    lines = ["| what | wanted | seen |", "|---|---|---|"]
    apart = max((run["apart_at_the_end"] for run in whole), default=float("nan"))
    steps = max((run["apart"] for run in whole), default=float("nan"))
    lines.append(
        f"| 4 to 3 to 2 to 4 processes, {times} times in {_runs(len(runs))} | finishes; loss "
        f"within 1e-5 relative of the undisturbed run | {len(whole)} of {_runs(len(runs))} "
        "finished, their "
        f"last loss at most {apart:.1e} and the loss of any step at most {steps:.1e} apart |"
    )
    for how in dict.fromkeys(change["how"] for change in changes):
        took = [change["seconds"] for change in changes if change["how"] == how]
        held = sum(change["held"] for change in changes if change["how"] == how)
        lines.append(
            f"| {how} | goes on with those that are there | {held} of {len(took)}, after "
            f"{statistics.median(took):.0f} s (median), {max(took):.0f} s (longest) |"
        )
    return "\n".join(lines)


def main() -> None:
    """Do it, store it, print it."""
    parser = argparse.ArgumentParser(description="Hosts that come and go.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--times", type=int, default=2, help="in each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=STORED)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"runs": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    for number in range(len(results["runs"]), arguments.runs):
        dice = random.Random(f"{arguments.seed} {number}")
        folder = Path(tempfile.mkdtemp(prefix="gtjax-elastic-"))
        try:
            found = tried(folder, arguments.times, dice)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        facts = {"seed": arguments.seed, "date": time.strftime("%Y-%m-%d"), "versions": versions()}
        facts |= {"elastic_seconds": SECONDS, "cores": len(os.sched_getaffinity(0))}
        facts |= {"load": round(os.getloadavg()[0], 1), "machine": platform.machine()}
        results["runs"].append(found | facts)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    held = (run["finished"] and run["apart_at_the_end"] <= TOLERANCE for run in results["runs"])
    if not all(held):
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Networks that fail: four processes in network namespaces, and what is done to their links.

    python experiments/networks.py [--disturbances 30] [--each 6] [--seed 0]        (needs root)

Four hosts with names and addresses of their own, joined by a bridge, each with a supervisor around
its process. To one that is drawn, at a moment that is drawn, one of these is done: its link is down
for 5 s; it sends at 1 Mbit/s for 10 s; what it sends is dropped for 5 s, while it still receives;
all of its processes are stopped for 5 s, or for longer than the watchdog waits; its link is down
until all processes of the run have ended. The run has to go on, or all processes have to end with
the host named and the supervisors have to bring the run home. After `--each` of them the run is
finished, and the losses of all of its steps have to be those of a run that nothing was done to, bit
by bit. Every run that is done is stored at once in `experiments/networks/results.json`, and not
done again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disturbances.runs import last_step, wait_until
from elastic import HOW, SMALL, losses

from gtjax.distributed.workers import ENTRY
from gtjax.runs.run_folder import versions

STORED = Path(__file__).parent / "networks" / "results.json"
COUNT = 4
PORT = 61999
WATCHDOG = 20  # seconds
END_SECONDS = WATCHDOG + 40  # beyond which processes count as hanging: with the supervisor's grace
PATIENCE_SECONDS = 400.0  # for the run to go on
STEPS = 3  # that are to be taken after what was done
# Sets the name of the host and the names of all, in namespaces that end with the process.
INSIDE = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


def ip(*words: str) -> None:
    """Of iproute2."""
    subprocess.run(["ip", *words], check=True)


class Network:
    """Four hosts and a bridge."""

    def __init__(self, folder: Path):
        self.hosts_file = folder / "hosts"
        lines = ["127.0.0.1 localhost", *(f"{self.address(i)} host{i}" for i in range(COUNT))]
        self.hosts_file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def space(self, index: int) -> str:
        """Name of the namespace of a host."""
        return f"gtjax-{os.getpid()}-{index}"

    def address(self, index: int) -> str:
        """Of a host."""
        return f"10.77.0.{index + 1}"

    def __enter__(self) -> Network:
        switch = self.space(COUNT)
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for index in range(COUNT):
            space, port = self.space(index), f"port{index}"
            ip("netns", "add", space)
            ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", port, "netns", switch)
            ip("-n", switch, "link", "set", port, "master", "br0", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for index in range(COUNT + 1):
            subprocess.run(["ip", "netns", "delete", self.space(index)], check=False)

    def inside(self, index: int, *command: str) -> list[str]:
        """A command on a host."""
        unshare = ["unshare", "--uts", "--mount", "sh", "-c", INSIDE, "sh"]
        entered = ["ip", "netns", "exec", self.space(index), *unshare]
        return [*entered, f"host{index}", str(self.hosts_file), *command]

    def link(self, index: int, state: str) -> None:
        """Up or down, at the bridge: the host itself does not see it."""
        ip("-n", self.space(COUNT), "link", "set", f"port{index}", state)

    def sends(self, index: int, *how: str) -> None:
        """How the host sends; nothing: as ever."""
        space = ["tc", "-n", self.space(index), "qdisc"]
        if how:
            subprocess.run([*space, "add", "dev", "eth0", "root", *how], check=True)
        else:
            subprocess.run([*space, "del", "dev", "eth0", "root"], check=True)


class Hosts:
    """The supervisors, and what they say."""

    def __init__(self, network: Network, folder: Path, run: Path):
        self.network, self.folder, self.run = network, folder, run
        self.supervisors: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> None:
        """One on each host."""
        self.supervisors = []
        for index in range(COUNT):
            place = ["--coordinator", f"{self.network.address(0)}:{PORT}"]
            place += ["--num-processes", str(COUNT), "--process-id", str(index)]
            words = ["launch", "--restarts", "30", "--", *command, *place]
            with self.log(index).open("ab") as log:
                self.supervisors.append(
                    subprocess.Popen(
                        self.network.inside(index, *ENTRY, *words), stdout=log, stderr=log
                    )
                )

    def log(self, index: int) -> Path:
        """What is said on a host."""
        return self.folder / f"host{index}.log"

    def workers(self) -> list[int]:
        """The process of every host; 0 where there is none."""
        found = []
        for each in self.supervisors:
            path = Path(f"/proc/{each.pid}/task/{each.pid}/children")
            words = path.read_text(encoding="ascii").split() if path.exists() else []
            found.append(int(words[0]) if words else 0)
        return found

    def wait(self, seconds: float) -> list[int]:
        """Exit codes."""
        end = time.monotonic() + seconds
        codes = []
        for each in self.supervisors:
            try:
                codes.append(each.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(-999)
        return codes

    def end(self) -> None:
        """Whatever is left."""
        for pid in (*self.workers(), *(each.pid for each in self.supervisors)):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for each in self.supervisors:
            each.wait()


Ways = dict[str, Callable[["Hosts", int, Callable[[], bool]], None]]


def down(hosts: Hosts, victim: int, ended: Callable[[], bool]) -> None:
    """The link, for 5 s."""
    hosts.network.link(victim, "down")
    time.sleep(5)
    hosts.network.link(victim, "up")


def slow(hosts: Hosts, victim: int, ended: Callable[[], bool]) -> None:
    """1 Mbit/s for 10 s."""
    limit = ("tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms")
    hosts.network.sends(victim, *limit)
    time.sleep(10)
    hosts.network.sends(victim)


def one_way(hosts: Hosts, victim: int, ended: Callable[[], bool]) -> None:
    """What it sends is dropped, for 5 s."""
    hosts.network.sends(victim, "blackhole")
    time.sleep(5)
    hosts.network.sends(victim)


def paused(hosts: Hosts, victim: int, ended: Callable[[], bool], seconds: float = 5.0) -> None:
    """Its processes are stopped and go on."""
    pids = [hosts.supervisors[victim].pid, hosts.workers()[victim]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def long_pause(hosts: Hosts, victim: int, ended: Callable[[], bool]) -> None:
    """For longer than the watchdog waits."""
    paused(hosts, victim, ended, WATCHDOG + 10.0)


def cut(hosts: Hosts, victim: int, ended: Callable[[], bool]) -> None:
    """Until all processes have ended."""
    hosts.network.link(victim, "down")
    wait_until(ended, END_SECONDS)
    hosts.network.link(victim, "up")


WAYS: Ways = {
    "link down for 5 s": down,
    "sends at 1 Mbit/s for 10 s": slow,
    "what it sends is dropped for 5 s": one_way,
    "stopped for 5 s": paused,
    f"stopped for {WATCHDOG + 10} s": long_pause,
    "cut for good": cut,
}


def trains(run: Path, since: float) -> bool:
    """Whether the processes of now have taken a step; what is in metrics may be of those before."""
    with contextlib.suppress(OSError, ValueError):
        known = json.loads((run / "status.json").read_text(encoding="utf-8"))
        return known["phase"] == "training" and "step" in known and known["updated"] > since
    return False


def disturbed(hosts: Hosts, what: str, dice: random.Random) -> dict[str, Any]:
    """Do one thing to one host, and see what comes of it."""
    victim = dice.randrange(COUNT)
    time.sleep(dice.uniform(0, 3))
    before, step = hosts.workers(), last_step(hosts.run)
    lengths = [hosts.log(index).stat().st_size for index in range(COUNT)]
    began, wall, ends = time.monotonic(), time.time(), [0.0] * COUNT

    def ended() -> bool:
        for index, pid in enumerate(hosts.workers()):
            if pid != before[index] and not ends[index]:
                ends[index] = time.monotonic() - began
        return all(ends)

    WAYS[what](hosts, victim, ended)
    over = time.monotonic()
    at = last_step(hosts.run)  # what was under way when it began may have been told since

    def goes_on() -> bool:
        now = hosts.workers()
        if now == before and not any(ends):
            return last_step(hosts.run) >= at + STEPS
        return ended() and all(now) and trains(hosts.run, wall + max(ends))

    went_on = wait_until(goes_on, PATIENCE_SECONDS)
    recovered = time.monotonic() - over
    said = ""
    for index in range(COUNT):
        with hosts.log(index).open("rb") as log:
            log.seek(lengths[index])
            said += log.read().decode(errors="replace")
    names = rf"\bhost{victim}\b|{re.escape(hosts.network.address(victim))}\b"
    lines = [line for line in said.splitlines() if re.search(names, line)]
    about = [line for line in lines if re.search("did not arrive|gone|silent|peer", line)]
    limits = [float(limit) for limit in re.findall(r"the limit is (\d+)", said)]
    row = {
        "what": what,
        "host": victim,
        "at_step": step,
        "outcome": "ended and came back" if all(ends) else "went on",
        "seconds_to_end": round(max(ends), 1) if all(ends) else None,
        "watchdog_limit": max(limits, default=None),  # larger than asked where steps are slow
        "seconds_to_go_on": round(recovered, 1),
        "named": bool(about) if all(ends) else None,
        "said": about[0][:200] if about else None,
        "held": went_on,
    }
    if not went_on or (all(ends) and not about):
        row["said_by_all"] = said[-3000:]
    if all(ends):
        row["held"] = went_on and bool(about) and max(ends) <= END_SECONDS
    return row


def tried(folder: Path, whats: list[str], dice: random.Random) -> dict[str, Any]:
    """One run, to which these are done one after the other."""
    run, rows = folder / "run", []
    watched = ("--watchdog-seconds", str(WATCHDOG), "--checkpoint-seconds", "3")

    def train(out: Path, steps: int) -> tuple[str, ...]:
        return ("train", *SMALL, *HOW, *watched, "--steps", str(steps), "--out", str(out))

    with Network(folder) as network:
        hosts = Hosts(network, folder, run)
        try:
            hosts.start(*train(run, 1_000_000))
            begun = wait_until(lambda: last_step(run) >= STEPS, PATIENCE_SECONDS)
            for what in whats if begun else ():
                rows.append(disturbed(hosts, what, dice))
                print(json.dumps({n: v for n, v in rows[-1].items() if n != "said_by_all"}))
                sys.stdout.flush()
                if "said_by_all" in rows[-1]:
                    print(rows[-1]["said_by_all"], flush=True)
                if not rows[-1]["held"] and not trains(run, time.time() - 10):
                    break
            hosts.supervisors[0].terminate()  # of one, all save and end
            stopped = hosts.wait(PATIENCE_SECONDS)
            steps = last_step(run) + 10
            hosts.start("resume", str(run), "--steps", str(steps))
            codes = hosts.wait(PATIENCE_SECONDS)
            undisturbed = Hosts(network, folder, folder / "undisturbed")
            hosts = undisturbed
            undisturbed.start(*train(undisturbed.run, steps))
            calm = undisturbed.wait(2 * PATIENCE_SECONDS)
        finally:
            hosts.end()
            for path in sorted(folder.glob("*.log")) if not rows else ():
                print(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}")
    found, wanted = losses(run), losses(folder / "undisturbed")
    return {
        "rows": rows,
        "stopped_codes": stopped,
        "codes": codes,
        "undisturbed_codes": calm,
        "steps": steps,
        "finished": codes == [0] * COUNT and len(found) == steps,
        "bit_equal": found == wanted,
    }


def table(results: dict[str, Any]) -> str:
    """What was done and seen, for the README."""
    lines = [
        "| to one of 4 hosts | times | went on | ended and came back | host named | all ended, s "
        "(longest) | went on after, s (median, longest) | bit-equal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [row | {"equal": run["bit_equal"]} for run in results["runs"] for row in run["rows"]]
    for what in WAYS:
        those = [row for row in rows if row["what"] == what]
        if not those:
            continue
        back = [row for row in those if row["outcome"] != "went on"]
        on = sum(row["outcome"] == "went on" and row["held"] for row in those)
        ends = f"{max(row['seconds_to_end'] for row in back):.0f}" if back else "-"
        took = [row["seconds_to_go_on"] for row in those]
        named = f"{sum(row['named'] for row in back)} of {len(back)}" if back else "-"
        cells = [what, len(those), on, len(back), named, ends]
        cells += [f"{statistics.median(took):.0f}, {max(took):.0f}"]
        cells += [f"{sum(row['equal'] for row in those)} of {len(those)}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Do what is not stored yet, store it, print it."""
    parser = argparse.ArgumentParser(description="Networks that fail.")
    parser.add_argument("--disturbances", type=int, default=30)
    parser.add_argument("--each", type=int, default=6, help="in one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=STORED)
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("namespaces and links need root")
    results: dict[str, Any] = {"runs": []}
    if arguments.out.exists():
        results = json.loads(arguments.out.read_text(encoding="utf-8"))
    while (done := sum(len(run["rows"]) for run in results["runs"])) < arguments.disturbances:
        dice = random.Random(f"{arguments.seed} {done}")
        number = min(arguments.each, arguments.disturbances - done)
        names = list(WAYS)
        whats = [names[(done + index) % len(names)] for index in range(number)]
        folder = Path(tempfile.mkdtemp(prefix="gtjax-networks-"))
        try:
            found = tried(folder, whats, dice)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not found["rows"]:
            sys.exit("the run did not begin")
        facts = {"seed": arguments.seed, "date": time.strftime("%Y-%m-%d"), "versions": versions()}
        facts |= {"watchdog_seconds": WATCHDOG, "cores": len(os.sched_getaffinity(0))}
        facts |= {"load": round(os.getloadavg()[0], 1)}
        results["runs"].append(found | facts)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    rows = [row for run in results["runs"] for row in run["rows"]]
    if not all(row["held"] for row in rows) or not all(r["bit_equal"] for r in results["runs"]):
        sys.exit(1)


if __name__ == "__main__":
    main()

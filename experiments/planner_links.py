"""The planner over real links: processes in network namespaces, with links of a chosen speed.

    sudo python experiments/planner_links.py [--processes 2 4] [--rates 50mbit 1gbit unshaped]

Every process has a network namespace of its own, linked to a bridge; `tc tbf` holds what each sends
to the rate. The processes are one `jax.distributed` run over gloo with one device each. They
measure the links (`gtjax.hardware`), plan for a graph that cuts well and one that cuts badly, then
run every strategy and time it. Needs Linux, `ip`, `tc` and root. Results are in
`experiments/planner/links.json`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "planner"
RATES = {"50mbit": 50e6, "1gbit": 1e9, "unshaped": None}
# So large that a step takes a while: about a second over the slowest link, more over a fast one.
GRAPHS = {
    "50mbit": {
        "grid:rows=60,columns=80": "well cut",
        "uniform:nodes=4800,edges=150e3": "badly cut",
    },
    "faster": {
        "grid:rows=200,columns=200": "well cut",
        "uniform:nodes=20e3,edges=600e3": "badly cut",
    },
}
PREFIX, NETWORK, PORT = "gtjx", "10.231.7", 29871
ROUNDS = 7
LIMIT_SECONDS = 900


def main() -> None:
    """Make namespaces for every number of processes and rate, and run the workers in them."""
    parser = argparse.ArgumentParser(description="The planner over real links.")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rates", nargs="+", choices=list(RATES), default=list(RATES))
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        processes, number, rate = arguments.worker
        work(int(processes), int(number), rate)
        return
    path = arguments.out / "links.json"
    results: dict[str, Any] = {"runs": []}
    if path.exists():
        results = json.loads(path.read_text(encoding="utf-8"))
    for processes in arguments.processes:
        for rate in arguments.rates:
            found = run(processes, rate)
            results["runs"] = [
                r for r in results["runs"] if (r["processes"], r["rate"]) != (processes, rate)
            ] + [found]
            results["command"] = "python experiments/planner_links.py"
            results["versions"] = {
                package: importlib.metadata.version(package) for package in ("gtjax", "jax")
            }
            arguments.out.mkdir(exist_ok=True, parents=True)
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


def run(processes: int, rate: str) -> dict[str, Any]:
    """One run of all processes, in namespaces that are removed again."""
    try:
        _make_namespaces(processes, rate)
        cores = os.cpu_count() or 1
        command = [sys.executable, __file__, "--worker", str(processes)]
        workers = [
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", f"{PREFIX}{number}"),
                    *("taskset", "-c", str(number % cores)),  # processes share no core if they can
                    *(*command, str(number), rate),
                ],
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                text=True,
            )
            for number in range(processes)
        ]
        try:
            text, _ = workers[0].communicate(timeout=LIMIT_SECONDS)
        finally:
            for each in workers:
                each.kill()
                each.wait()
    finally:
        _remove_namespaces(processes)
    found = json.loads(text.splitlines()[-1])
    for case in found["cases"]:
        print(
            f"{processes} x {rate}, {case['graph']}: measured {found['link_bytes'] * 8e-6:.0f} "
            f"Mbit/s, chose {case['chosen']}, best {case['best']}, regret {case['regret']:.2f}",
            flush=True,
        )
    return {"processes": processes, "rate": rate, **found}


def _make_namespaces(processes: int, rate: str) -> None:
    _remove_namespaces(processes)
    _do("ip", "link", "add", f"{PREFIX}br", "type", "bridge")
    _do("ip", "link", "set", f"{PREFIX}br", "up")
    for number in range(processes):
        name, here, there = f"{PREFIX}{number}", f"{PREFIX}h{number}", f"{PREFIX}n{number}"
        _do("ip", "netns", "add", name)
        # gloo listens where the machine's name leads: in a namespace, to its own address.
        hosts = Path("/etc/netns", name, "hosts")
        hosts.parent.mkdir(parents=True, exist_ok=True)
        address = f"{NETWORK}.{number + 1}"
        hosts.write_text(f"127.0.0.1 localhost\n{address} {platform.node()}\n", encoding="ascii")
        _do("ip", "link", "add", here, "type", "veth", "peer", "name", there)
        _do("ip", "link", "set", there, "netns", name)
        _do("ip", "link", "set", here, "master", f"{PREFIX}br", "up")
        inside = ("ip", "netns", "exec", name)
        _do(*inside, "ip", "addr", "add", f"{NETWORK}.{number + 1}/24", "dev", there)
        _do(*inside, "ip", "link", "set", there, "up")
        _do(*inside, "ip", "link", "set", "lo", "up")
        if (speed := RATES[rate]) is not None:
            # A bucket for less than a tick of the kernel's clock holds the link below its rate.
            burst = f"{max(64_000, int(speed / 8 / 100))}b"
            tbf = ("root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")
            _do(*inside, "tc", "qdisc", "add", "dev", there, *tbf)


def _remove_namespaces(processes: int) -> None:
    for number in range(processes):
        _do("ip", "netns", "del", f"{PREFIX}{number}", check=False)
        shutil.rmtree(Path("/etc/netns", f"{PREFIX}{number}"), ignore_errors=True)
        _do("ip", "link", "del", f"{PREFIX}h{number}", check=False)
    _do("ip", "link", "del", f"{PREFIX}br", check=False)


def _do(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL)


def work(processes: int, number: int, rate: str) -> None:
    """One process: join, measure, plan, and run every candidate."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"{NETWORK}.1:{PORT}", processes, number)

    from planner import Running, name_of  # the script beside this one

    import gtjax
    from gtjax.hardware.measure import measure

    hardware = measure(jax.devices(), lambda done, text: None)
    curves = [c for c in hardware.curves if c.devices == processes]
    found: dict[str, Any] = {
        # gloo's permute and all-to-all take turns, one way and the other: see the best of all.
        "link_bytes": max(c.bandwidth for c in curves),
        "latency": min(c.latency for c in curves),
        "curves": [[c.collective, c.devices, c.hosts, c.points] for c in hardware.curves],
        "cases": [],
    }
    for name, kind in GRAPHS.get(rate, GRAPHS["faster"]).items():
        model = gtjax.TransformerConfig(hidden=32, heads=4, layers=2, remat="elementwise")
        config = gtjax.TrainConfig(
            model=model, parallel=gtjax.ParallelConfig(devices=processes, partitioner="metis")
        )
        graph = gtjax.load(name)
        plan = gtjax.plan(graph, config=config, hardware=hardware)
        able = [candidate for candidate in plan.candidates if candidate.price is not None]
        running = [Running(graph, config, candidate) for candidate in able]
        for _ in range(ROUNDS + 1):
            for each in running:
                each.run()
        rows = [
            {
                "name": name_of(candidate),
                "measured_seconds": statistics.median(each.times[1:]),
                "predicted_seconds": candidate.price.seconds,
                "moved_bytes": candidate.price.moved_bytes,
            }
            for candidate, each in zip(able, running, strict=True)
            if candidate.price is not None
        ]
        assert plan.chosen is not None
        chosen = next(row for row in rows if row["name"] == name_of(plan.chosen))
        best = min(rows, key=lambda row: row["measured_seconds"])
        found["cases"].append(
            {
                "graph": name,
                "kind": kind,
                "cut": plan.chosen.parts.cut.cut if plan.chosen.parts else None,
                "chosen": chosen["name"],
                "best": best["name"],
                "regret": chosen["measured_seconds"] / best["measured_seconds"],
                "why": plan.flip,
                "rows": rows,
            }
        )
    if number == 0:
        print(json.dumps(found), flush=True)
    time.sleep(0.5)  # so that nobody misses the last message


def table(results: dict[str, Any]) -> str:
    """The results as in the README."""
    lines = [
        "| processes | link | measured, Mbit/s | graph | chosen | fastest measured | regret |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in results["runs"]:
        speed = f"{each['link_bytes'] * 8e-6:,.0f}"
        lines += [
            f"| {each['processes']} | {each['rate']} | {speed} | {case['graph']} "
            f"({case['kind']}) | {case['chosen']} | {case['best']} | {case['regret']:.2f} |"
            for case in each["cases"]
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""What the first process of a run does for each of the others, and what that comes to for many.

    python experiments/many_hosts.py [--processes 2 4 8 16] [--times 40] [--repeats 3] [--out FILE]

Real processes with a real coordinator of `jax.distributed` on one machine, each with a `Team` and
nothing to compute. Every kind of agreement is made so many times, with a wait of all for all
between two, through pipes that the coordinator does not see. Counted are the requests that it
takes and the bytes of their names and values (gRPC adds headers, which are not counted); measured
are seconds of the processor of process 0, in which the coordinator lives. Lines are fitted over the
number of processes, by least squares of relative errors, and drawn out to 256 and 4,096: that is
arithmetic, not a measurement. "each reads each" is how it was done before, for comparison.
Results are in `experiments/many_hosts/results.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

STORED = Path(__file__).parent / "many_hosts" / "results.json"
HOSTS = (256, 4096)  # that are never there
KINDS = {
    "turn": "turn: what all do next",
    "gathered": "gathered: each says something, one answer",
    "nothing": "gathered: nobody has anything to say",
    "beat": "a beat of every process",
    "old": "before: each reads each",
}
UNITS = ("requests", "bytes", "seconds")  # of process 0, per agreement


def board_that_counts(client: Any, count: int) -> Any:
    """The coordinator's, with what it was asked for."""
    from gtjax.distributed.team import Coordinator

    class Counting(Coordinator):
        requests, bytes = 0, 0

        def _saw(self, *texts: str | None) -> None:
            self.requests += 1
            self.bytes += sum(len(text) for text in texts if text is not None)

        def put(self, name: str, text: str) -> None:
            super().put(name, text)
            self._saw(name, text)

        def wait(self, name: str) -> str | None:
            text = super().wait(name)
            self._saw(name, text)
            return text

        def look(self, name: str) -> str | None:
            text = super().look(name)
            self._saw(name, text)
            return text

        def under(self, prefix: str) -> dict[str, str]:
            found = super().under(prefix)
            self._saw(prefix, *(f"{prefix}{name}{text}" for name, text in found.items()))
            return found

        def count(self, name: str) -> int:
            number = super().count(name)
            self._saw(name, str(number))
            return number

        def remove(self, name: str) -> None:
            super().remove(name)
            self._saw(name)

    return Counting(client, count)


def agreements(team: Any) -> dict[str, Callable[[int], Any]]:
    """Each kind, once, by the number of the time."""
    here = ["some-host-0000", 8, "some kind of device"]
    decision = {"count": 10, "stop": False, "sample": False, "config": None}

    def each_reads_each(number: int) -> None:
        team.board.put(f"old/{number}/{team.index}", json.dumps(here))
        for index in range(team.count):
            team.board.wait(f"old/{number}/{index}")

    return {
        "idle": lambda number: None,
        "turn": lambda number: team.turn(lambda: decision),
        "gathered": lambda number: team.gathered(here, lambda values: values[0]),
        "nothing": lambda number: team.first_found(None),
        "beat": lambda number: team.pulse.beat(),
        "old": each_reads_each,
    }


def be_process(index: int, count: int, address: str, times: int, repeats: int) -> None:
    """One of the processes: takes part in all, says what each took."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(
        address,
        count,
        index,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        initialization_timeout=600,
    )
    from jax._src import distributed

    from gtjax.distributed.team import Team

    board = board_that_counts(distributed.global_state.client, count)
    team = Team(index, count, board)
    team.pulse.beat()  # nobody else starts it

    def together(word: Any = "") -> None:
        print(f"@{json.dumps(word)}", flush=True)
        sys.stdin.readline()

    for name, agree in agreements(team).items():
        agree(-1)
        for repeat in range(repeats):
            together()
            requests, size, start = board.requests, board.bytes, time.process_time()
            for number in range(times):
                agree(repeat * times + number)
                together()  # what the coordinator does for others meanwhile is counted too
            seconds = time.process_time() - start
            took = {"requests": board.requests - requests, "bytes": board.bytes - size}
            together({"kind": name, **took, "seconds": seconds})
    together("end")
    jax.distributed.shutdown()


def measured(count: int, times: int, repeats: int) -> dict[str, Any]:
    """What so many processes took at process 0, by kind, for one agreement of each."""
    from gtjax.distributed.supervisor import free_port

    words = [str(each) for each in (count, f"127.0.0.1:{free_port()}", times, repeats)]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--process", str(index), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("SHOW") else subprocess.DEVNULL,
            text=True,
        )
        for index in range(count)
    ]
    found: dict[str, list[dict[str, float]]] = {}
    try:
        while True:
            said = [_word(process) for process in processes]
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            if said[0] == "end":
                break
            if said[0]:
                one = {
                    "requests": sum(each["requests"] for each in said) / times,
                    "bytes": sum(each["bytes"] for each in said) / times,
                    "seconds": said[0]["seconds"] / times,
                }
                found.setdefault(said[0]["kind"], []).append(one)
        for process in processes:
            process.wait(timeout=120)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
    idle = statistics.median(each["seconds"] for each in found.pop("idle"))  # of the pipes
    for runs in found.values():
        for each in runs:
            each["seconds"] -= idle
    return {
        kind: {unit: statistics.median(each[unit] for each in runs) for unit in UNITS}
        | {"spread": [min(r["seconds"] for r in runs), max(r["seconds"] for r in runs)]}
        for kind, runs in found.items()
    }


def _word(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("@"):
            return json.loads(line[1:])
    raise SystemExit(f"a process ended with {process.wait()}: set SHOW=1 to see what it says")


def fitted(rows: dict[str, Any]) -> dict[str, Any]:
    """A line over the number of processes, how fast it really grows, and both drawn out."""
    counts = np.array([int(count) for count in rows], float)
    found: dict[str, Any] = {}
    for kind in KINDS:
        found[kind] = {}
        for unit in UNITS:
            values = np.array([rows[count][kind][unit] for count in rows])
            degree = 2 if kind == "old" else 1
            powers = np.vander(counts, degree + 1)
            line = np.linalg.lstsq(powers / values[:, None], np.ones(len(values)), rcond=None)[0]
            growth = np.polyfit(np.log(counts), np.log(values), 1)[0]
            found[kind][unit] = {
                "polynomial": line.tolist(),
                "worst_error": float(np.abs(powers @ line / values - 1).max()),
                "grows_as_power": float(growth),
                "at": {str(count): float(np.polyval(line, count)) for count in HOSTS},
            }
    return found


def table(results: dict[str, Any]) -> str:
    """Requests, bytes and milliseconds of process 0, for the README."""
    rows, fits = results["rows"], results["fits"]
    heads = [*rows, *(f"{count:,} (arithmetic)" for count in HOSTS)]
    lines = [
        f"| at process 0, per agreement | | grows as | {' | '.join(heads)} |",
        f"|---|---|---|{'---|' * len(heads)}",
    ]
    scale = {"requests": 1.0, "bytes": 1.0, "seconds": 1e3}
    for kind, name in KINDS.items():
        for unit in UNITS:
            fit = fits[kind][unit]
            values = [row[kind][unit] for row in rows.values()]
            values += [fit["at"][str(count)] for count in HOSTS]
            shown = " | ".join(_short(scale[unit] * value) for value in values)
            named = "ms of a core" if unit == "seconds" else unit
            lines.append(f"| {name} | {named} | P^{fit['grows_as_power']:.2f} | {shown} |")
    worst = max(fits[kind]["seconds"]["worst_error"] for kind in KINDS)
    said = f"Lines are within {100 * worst:.0f} % of every measured time. By them, training at"
    return "\n".join([*lines, "", f"{said} {results['a_second']}."])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def a_second(results: dict[str, Any]) -> str:
    """What a second of training costs: turns as often as they come, and the beats of all."""
    from gtjax.distributed.team import OwnBoard, Team
    from gtjax.runs.turns import turn_seconds

    said = []
    for count in HOSTS:
        at = {kind: results["fits"][kind]["seconds"]["at"][str(count)] for kind in KINDS}
        every = Team(0, count, OwnBoard()).pulse.seconds
        share = at["turn"] / turn_seconds(count) + at["beat"] / every
        said.append(
            f"{count:,} hosts, with a turn in {turn_seconds(count):g} s and a beat of each in "
            f"{every:g} s, takes {100 * share:.0f} % of a core of process 0 "
            f"({100 * (at['turn'] + at['beat']):.0f} % with both once a second)"
        )
    return "; at ".join(said)


def main() -> None:
    """Measure, fit, store and print."""
    if sys.argv[1:2] == ["--process"]:
        index, count, address, times, repeats = sys.argv[2:]
        be_process(int(index), int(count), address, int(times), int(repeats))
        return
    parser = argparse.ArgumentParser(description="The cost of process 0, by processes.")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=STORED)
    arguments = parser.parse_args()
    rows = {}
    for count in arguments.processes:
        rows[str(count)] = measured(count, arguments.times, arguments.repeats)
        print(count, json.dumps(rows[str(count)]), flush=True)
    import jax

    results = {
        "command": "python experiments/many_hosts.py "
        f"--processes {' '.join(map(str, arguments.processes))} --times {arguments.times} "
        f"--repeats {arguments.repeats}",
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"jax": jax.__version__, "python": sys.version.split()[0]},
        "cores": len(os.sched_getaffinity(0)),
        "rows": rows,
        "fits": fitted(rows),
    }
    results["a_second"] = a_second(results)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()

"""One run of several processes that is preempted and killed again and again."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from disturbances.runs import (
    INTERVAL,
    Chaos,
    Row,
    done,
    final_hash,
    last_step,
    launch,
    train_options,
    until_interrupted,
    wait_until,
)


def disturbed(chaos: Chaos) -> dict[str, Any]:
    """One run, disturbed again and again: SIGTERM to a process, then kill -9 of one, and so on.

    Preempted, all processes save at the same step and end, and the run is resumed from there. When
    one is killed, the supervisor starts all of them again. At the end nothing is done to the run
    any more, and it has to end as one that was never disturbed.
    """
    cases: list[dict[str, Any]] = []
    options = ("--steps", str(chaos.times(1200, 200)))
    with chaos.new_folder() as folder:
        whole, run, log = (folder / name for name in ("whole", "run", "run.log"))
        code = done(launch(chaos.processes, *train_options(whole, *options), log=log), 1200)
        assert code == 0, log.read_text()
        log.unlink()
        process = launch(chaos.processes, *train_options(run, *options), log=log)
        with until_interrupted():
            while len(cases) < 2 * chaos.times(50, 1) and process.poll() is None:
                how = ("SIGTERM", "SIGKILL")[len(cases) % 2]
                if chaos.random.random() < 0.3 and not chaos.short:  # while it starts
                    time.sleep(chaos.random.uniform(0.5, 15.0))
                else:
                    now = last_step(run)
                    wait_until(lambda n=now, p=process: last_step(run) > n or p.poll() == 0, 120)
                    time.sleep(chaos.random.uniform(0.0, 0.3 if chaos.short else 2.0))
                if process.poll() is not None:
                    break
                victim = chaos.random.randrange(chaos.processes)
                case = {"how": how, "process": victim, "reached": last_step(run)}
                before = len(_resumed_at(log))
                _signal_worker(process, victim, signal.Signals[how])
                asked = time.monotonic()
                if how == "SIGTERM":
                    case["code"] = done(process)
                    case["seconds_to_end"] = round(time.monotonic() - asked, 2)
                    case["reached"] = last_step(run)
                    begun = (run / "config.json").exists()
                    command = ("resume", str(run)) if begun else train_options(run, *options)
                    process = launch(chaos.processes, *command, log=log)
                wait_until(lambda n=before: len(_resumed_at(log)) > n, 120)
                steps = _resumed_at(log)
                case["resumed"] = steps[-1] if len(steps) > before else 0
                case["lost"] = max(0, case["reached"] - case["resumed"])
                case["seconds_to_resume"] = round(time.monotonic() - asked, 1)
                print(len(cases), case, flush=True)
                cases.append(case)
        code = done(process, 1800)
        same = code == 0 and final_hash(run) == final_hash(whole)
    terms = [case for case in cases if case["how"] == "SIGTERM"]
    kills = [case for case in cases if case["how"] == "SIGKILL"]
    known = {
        "cases": cases,
        "preempted": len(terms),
        "killed": len(kills),
        "exited_with_0": sum(case["code"] == 0 for case in terms),
        "slowest_exit": max((case["seconds_to_end"] for case in terms), default=0),
        "most_lost_preempted": max((case["lost"] for case in terms), default=0),
        "most_lost_killed": max((case["lost"] for case in kills), default=0),
        "finished": code == 0,
        "same": same,
    }
    fast = known["slowest_exit"] <= 30 and known["exited_with_0"] == len(terms)
    lost = known["most_lost_preempted"] == 0 and known["most_lost_killed"] <= INTERVAL
    return known | {"held": bool(cases) and same and fast and lost}


def _resumed_at(log: Path) -> list[int]:
    found = re.findall(r"resuming .* at step (\d+)", log.read_text(errors="replace"))
    return [int(step) for step in found]


def _signal_worker(process: subprocess.Popen, victim: int, number: signal.Signals) -> None:
    """To the worker of that number, once it is there."""
    wait_until(lambda: len(workers_of(process.pid)) > victim or process.poll() is not None, 60)
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(workers_of(process.pid)[victim], number)


def workers_of(pid: int) -> list[int]:
    """The processes that a supervisor has started, in their order."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


ROW = Row(
    "one run of 4 processes: SIGTERM and kill -9 in turns, a random process at a random moment",
    "SIGTERM: no step lost, out within 30 s; kill -9: at most an interval lost; bit-equal",
    disturbed,
    lambda r: (
        f"{r['preempted']} SIGTERM: {r['most_lost_preempted']} steps lost, "
        f"{r['exited_with_0']} out with code 0 within {r['slowest_exit']:.1f} s; "
        f"{r['killed']} kill -9: at most {r['most_lost_killed']} steps lost (interval "
        f"{INTERVAL}); the end {'is' if r['same'] else 'is not'} bit-equal"
    ),
)

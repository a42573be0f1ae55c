"""A process that no longer arrives."""

from __future__ import annotations

import signal
import time
from typing import Any

from disturbances.runs import (
    Chaos,
    Row,
    done,
    last_step,
    start,
    train_options,
    until_interrupted,
    wait_until,
)
from gtjax.distributed.supervisor import free_port

STUCK = """
import sys
import time
import gtjax.runs.turns as turns
take = turns.Turns._take
def stuck(self, snapshot, turn, update):
    if int(snapshot.state.step) >= {step}:
        print("STUCK", flush=True, file=sys.stderr)
        while True:
            time.sleep(1)
    return take(self, snapshot, turn, update)
turns.Turns._take = stuck
from gtjax.cli.main import main
sys.exit(main())
"""


def stuck(chaos: Chaos) -> dict[str, Any]:
    """A process that is stopped, or stuck in Python: the others end, and name it."""
    cases, limit, count = [], 20, chaos.processes
    with chaos.new_folder() as folder, until_interrupted():
        for number in range(chaos.times(20, 1)):
            how = ("stuck", "stopped")[number % 2]
            victim = chaos.random.randrange(count)
            step = chaos.random.randrange(3, 15)
            run, port = folder / f"run-{number}", free_port()
            logs = [folder / f"{number}-{index}.log" for index in range(count)]
            workers = []
            for index in range(count):
                place = ("--coordinator", f"127.0.0.1:{port}", "--num-processes", str(count))
                options = train_options(run, "--watchdog-seconds", str(limit))
                code = STUCK.format(step=step) if (how, index) == ("stuck", victim) else None
                each = (*options, *place, "--process-id", str(index))
                workers.append(start(*each, log=logs[index], code=code))
            if how == "stopped":
                began = wait_until(lambda s=step, r=run: last_step(r) >= s, 120)
                workers[victim].send_signal(signal.SIGSTOP)
            else:
                began = wait_until(lambda log=logs[victim]: "STUCK" in log.read_text(), 120)
            at = time.monotonic()
            others = [worker for index, worker in enumerate(workers) if index != victim]
            codes = [done(worker, limit + 60) for worker in others]
            ended = time.monotonic() - at
            named = any(
                f"process {victim} did not arrive" in log.read_text(errors="replace")
                for log in logs
            )
            workers[victim].kill()
            workers[victim].wait()
            stacks = (run / "stacks" / f"process-{victim}.txt").exists()
            case = {
                "how": how,
                "process": victim,
                "began": began,
                "codes": codes,
                "seconds_to_end": round(ended, 1),
                "named": named,
                "stacks": stacks,
            }
            print(number, case, flush=True)
            if not named:
                print(*(log.read_text(errors="replace")[-1500:] for log in logs), sep="\n-----\n")
            cases.append(case)
    longest = limit + chaos.times(0, 10)  # the short form runs beside other tests
    held = [
        c["named"] and not {0, -999} & set(c["codes"]) and c["seconds_to_end"] <= longest
        for c in cases
    ]
    return {
        "cases": cases,
        "times": len(cases),
        "named": sum(c["named"] for c in cases),
        "limit": limit,
        "slowest_exit": max(c["seconds_to_end"] for c in cases),
        "held": all(held),
    }


ROW = Row(
    "a process of 4 stopped (SIGSTOP), or stuck in Python",
    "survivors out within the watchdog's limit, the process named",
    stuck,
    lambda r: (
        f"named {r['named']} of {r['times']} times, out within {r['slowest_exit']:.1f} s "
        f"(limit set to {r['limit']} s)"
    ),
)

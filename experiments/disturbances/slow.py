"""A process that has to share its core."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

from disturbances.runs import Chaos, Row, done, launch, train_options

# Large enough that steps are mostly computing.
LARGER = ("--data", "rmat:nodes=20e3,edges=200e3", "--model.hidden", "64", "--steps", "60")
BUSY = "while True: pass"


def slow(chaos: Chaos) -> dict[str, Any]:
    """Two processes of one core each, every other time one core is busy with something else."""
    cases = []
    with chaos.new_folder() as folder:
        for number in range(2 * chaos.times(5, 1)):
            victim = chaos.random.randrange(2) if number % 2 else None
            log = folder / f"{number}.log"
            other = None
            if victim is not None:
                command = ["taskset", "-c", str(victim), sys.executable, "-c", BUSY]
                other = subprocess.Popen(command)
            try:
                code = done(launch(2, *train_options(folder / str(number), *LARGER), log=log))
            finally:
                if other is not None:
                    other.kill()
                    other.wait()
            named = re.findall(r"process (\d) computes ([\d.]+)x", log.read_text(errors="replace"))
            case = {
                "slow": victim,
                "code": code,
                "named": sorted({int(index) for index, _ in named}),
                "times_the_median": max((float(times) for _, times in named), default=None),
            }
            print(number, case, flush=True)
            cases.append(case)
    right = [case["named"] == ([] if case["slow"] is None else [case["slow"]]) for case in cases]
    return {
        "cases": cases,
        "slowed": sum(case["slow"] is not None for case in cases),
        "right": sum(right),
        "held": all(right),
    }


ROW = Row(
    "one of 2 processes shares its core with a busy program",
    "named while it does, and nobody otherwise",
    slow,
    lambda r: f"right in {r['right']} of {len(r['cases'])} runs, {r['slowed']} of them slowed",
)

"""Workers of a tuning as processes side by side, each with its share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gtjax.runs.run_folder import RunFolder
from gtjax.tuning import study as studies
from gtjax.tuning.worker import TOLD, Orders

LEAST_GRACE = 30.0  # seconds that workers get to finish what they are compiling
GRACE = 0.1  # the same as a share of the time that they were given


def run_workers(
    folder: RunFolder,
    orders: Orders,
    study: Any,
    meanwhile: Callable[[], None],
    tick: Callable[[], None],
) -> list[str]:
    """Have as many workers as the orders say run trials until their time is over.

    `meanwhile` is done here once they run, `tick` every now and then. Returns what there is to say
    of workers that went wrong.
    """
    path, given = folder.path, max(0.0, orders.until - time.time())
    folder.write_json(TOLD, orders.to_json())
    workers = []
    for number in range(orders.jobs):
        command = [sys.executable, "-m", "gtjax.tuning.worker", str(path), str(number)]
        with (path / f"worker-{number}.log").open("w", encoding="utf-8") as log:
            workers.append(subprocess.Popen(command, stdout=log, stderr=log, env=_environment()))
    try:
        meanwhile()
        late = orders.until + max(LEAST_GRACE, GRACE * given)
        while any(each.poll() is None for each in workers):
            time.sleep(0.5)
            tick()
            if time.time() > late and studies.finished(study):
                break
    finally:
        for each in workers:
            if each.poll() is None:
                each.terminate()
        for each in workers:
            with suppress(subprocess.TimeoutExpired):
                each.wait(timeout=10)
    return [
        f"worker {number} ended with code {each.returncode}: {_last_words(path, number)}"
        for number, each in enumerate(workers)
        if each.returncode not in (0, -signal.SIGTERM)  # but for those that were late
    ]


def _last_words(path: Path, number: int) -> str:
    said = (path / f"worker-{number}.log").read_text(encoding="utf-8", errors="replace")
    return (said.strip().splitlines() or ["it said nothing"])[-1]


def _environment() -> dict[str, str]:
    """Of a worker: it finds gtjax where this process found it."""
    home = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": paths}

"""The parent's side of a contender's process: ask it for one thing at a time, and end it.

While it waits it watches the memory that is left, and stops a contender that would make the machine
swap, or the system kill something else.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from contenders.environments import PEER_ENVIRONMENT, last_words
from contenders.memory import available_bytes
from contenders.work import Absent

RESERVE_BYTES = 2**30  # what is left alone, for the system and whoever else uses it
LONGEST_SECONDS = 1800.0
TOO_LITTLE_MEMORY = "needs more memory than there is"


class Worker:
    """One contender at work on one case."""

    def __init__(
        self,
        contender: str,
        python: Path,
        folder: Path,
        cores: int | None = None,
        sources: Path | None = None,
        module: str = "contenders.worker",
    ):
        """Start it; `ready` waits until it has loaded, and compiled if it does that.

        `sources` is a tree with the packages to compare, in place of those of this process;
        `module` is what runs in it.
        """
        name = contender if sources is None else f"{contender}-{sources.name}"
        self._errors = (folder / f"{name}-{cores}.stderr").open("w+", encoding="utf-8")
        command = [str(python), "-m", module, contender, str(folder)]
        self._process = subprocess.Popen(
            command if cores is None else [*command, str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            # Python takes packages from where it is started before those of its path.
            cwd=None if sources is None else folder,
            env=_environment(own=python == Path(sys.executable), sources=sources),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with contextlib.suppress(ValueError):  # closed under our hands
            for line in stdout:
                self._lines.put(line)
        self._lines.put("")

    def ready(self) -> dict[str, Any]:
        """What it says of itself once it is ready; `Absent` if it cannot be, or should not run."""
        said = self._answer()
        if "absent" in said:
            raise Absent(said["absent"])
        return said

    def ask(self, do: str, operation: str = "") -> dict[str, Any]:
        """Have it do one thing; `Absent` if that ends it."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # it is gone: the answer will say why
            stdin.write(json.dumps({"do": do, "operation": operation}) + "\n")
            stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _answer(self) -> dict[str, Any]:
        end = time.monotonic() + LONGEST_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=0.1)
                break
            except queue.Empty:
                left = available_bytes()
                if left is not None and left < RESERVE_BYTES / 2:
                    raise Absent(TOO_LITTLE_MEMORY) from None
                if time.monotonic() > end:
                    raise Absent(f"no answer within {LONGEST_SECONDS:.0f} s") from None
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        if code == -9:
            raise Absent(f"{TOO_LITTLE_MEMORY} (the system ended it)")
        raise Absent(f"it failed: {last_words(self._errors.read())}")


def require_memory(needs_bytes: int) -> None:
    """`Absent` if so much cannot be had without swapping."""
    left = available_bytes()
    if left is not None and needs_bytes + RESERVE_BYTES > left:
        needed, there = needs_bytes / 2**30, left / 2**30
        raise Absent(f"{TOO_LITTLE_MEMORY}: about {needed:.1f} GiB, with {there:.1f} GiB left")


def _environment(*, own: bool, sources: Path | None) -> dict[str, str]:
    """On the CPU, with thread pools that sleep while another contender is timed."""
    here = str(Path(__file__).parents[1])
    environment = dict(os.environ)
    more = environment.get("PYTHONPATH", "") if sources is None else str(sources.resolve())
    paths = [here, *filter(None, [more])]
    environment["PYTHONPATH"] = os.pathsep.join(paths) if own else here
    environment["JAX_PLATFORMS"] = "cpu"
    environment |= {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
    environment |= PEER_ENVIRONMENT
    for name in ("PYTHONWARNINGS", "PYTHONHOME", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.pop(name, None)
    return environment

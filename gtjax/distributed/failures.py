"""What happened to a run: a line in its folder for every failure, whoever noticed it.

Supervisors write here when a process has ended and what they do about it, watchdogs when one did
not arrive. A line at a time is appended, so that several hosts may write.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

FILE = "failures.jsonl"
MOST_BYTES = 1_000_000  # of the end of the file that are read


def note_failure(run: Path | None, why: str, then: str) -> None:
    """Append why something ended and what was done then; nowhere if there is no folder yet."""
    if run is None or not run.is_dir():
        return
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    line = json.dumps({"date": now, "host": socket.gethostname(), "why": why, "then": then})
    with contextlib.suppress(OSError):  # a disk that is full has its own error
        number = os.open(run / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(number, line.encode() + b"\n")
        finally:
            os.close(number)


def failures(run: Path) -> list[dict[str, Any]]:
    """All that were noted, the oldest first; a line that is cut off is left out."""
    found = []
    with contextlib.suppress(OSError), (run / FILE).open("rb") as file:
        file.seek(max(0, (run / FILE).stat().st_size - MOST_BYTES))
        for line in file:
            with contextlib.suppress(ValueError):
                known = json.loads(line)
                if isinstance(known, dict) and {"date", "host", "why", "then"} <= known.keys():
                    found.append(known)
    return found

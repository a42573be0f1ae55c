"""Whether a run is under way: its process leaves a file while it runs, and is looked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gtjax.remote.problems import StoreError
from gtjax.runs.run_folder import RunFolder

FILE = "running.json"


@contextmanager
def noted_as_running(folder: RunFolder) -> Iterator[None]:
    """Leave the file, and take it away however this ends; only a process that is killed cannot."""
    own = os.getpid()
    folder.write_json(
        FILE, {"host": socket.gethostname(), "process": own, "began": _beginning(own)}
    )
    folder.flush()
    try:
        yield
    finally:
        folder.remove(FILE)
        with suppress(StoreError):  # what went wrong first is what counts; results are told of
            folder.flush()


def is_running(known: dict[str, Any] | None) -> bool | None:
    """Whether the process of the file is there; None if it is on another machine."""
    if known is None:
        return False
    if known["host"] != socket.gethostname():
        return None
    try:
        os.kill(int(known["process"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        pass
    return _beginning(known["process"]) == known["began"]


def _beginning(process: int) -> str | None:
    """When a process began, since its number is used again; None where nobody tells."""
    try:
        text = Path(f"/proc/{int(process)}/stat").read_text(encoding="utf-8")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None

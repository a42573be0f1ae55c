"""How far a run is, in a file of its folder, for those who watch it from elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from gtjax.core.errors import UserError
from gtjax.runs.run_folder import RunFolder

FILE = "status.json"
EVERY_SECONDS = 1.0  # at most as often, but for a new phase


class Status:
    """Writes the file, in the first process; what is not said again stays as it was."""

    def __init__(self, folder: RunFolder, steps: int, hosts: list[dict[str, Any]]):
        self._folder = folder
        self._known: dict[str, Any] = {"phase": "starting", "steps": steps, "hosts": hosts}
        self._written = 0.0

    def doing(self, phase: str) -> None:
        """Another phase begins."""
        self._known["phase"] = phase
        self._write()

    def reached(self, step: int, **facts: Any) -> None:
        """A turn of steps is over."""
        self._known |= {"step": step, **facts}
        if time.time() - self._written >= EVERY_SECONDS:
            self._write()

    def _write(self) -> None:
        self._written = time.time()
        with contextlib.suppress(UserError):  # what has to be written tells of a disk that is full
            self._folder.write_json(FILE, self._known | {"updated": self._written})

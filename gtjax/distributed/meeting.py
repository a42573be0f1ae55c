"""A folder that all hosts of an elastic run see, where they tell of themselves and decide.

Every file is whole or not there. What is decided is numbered, and a number is given once: a file is
linked to its name, which also over NFS exactly one host can do. So two that both think that they
lead do not decide twice; the slower one reads what the other has decided. No clocks are compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError

KEPT = 3  # decisions that stay to be read


@dataclass(frozen=True)
class Decision:
    """Who goes on together, or that all end."""

    number: int
    members: tuple[int, ...] = ()  # in the order of their processes
    hosts: tuple[str, ...] = ()  # of the members
    coordinator: str = ""
    again: bool = False  # whether there is a run to be continued
    checkpoint: int = -1  # its newest then
    failures: int = 0  # since there last was a new one
    end: int | None = None  # exit code of all
    why: str = ""


class Meeting:
    """The folder, made when it is first written to."""

    def __init__(self, folder: Path):
        self.folder = folder

    @staticmethod
    def beside(run: Path) -> Meeting:
        """Hidden, next to the folder of a run, which must not be there before the run is."""
        run = run.absolute()
        return Meeting(run.with_name(f".{run.name}.members"))

    def names(self, kind: str) -> list[int]:
        """Numbers of the files of a kind, the smallest first."""
        try:
            files = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []
        found = (re.fullmatch(rf"{kind}-(\d+)\.json", name) for name in files)
        return sorted(int(each[1]) for each in found if each)

    def read(self, kind: str, number: int) -> dict[str, Any] | None:
        """What a file tells; None if it is not there."""
        try:
            return json.loads(self._path(kind, number).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # ValueError: of a disk that was full
            return None

    def write(self, kind: str, number: int, value: dict[str, Any]) -> None:
        """Instead of what was there."""
        self._written(value).replace(self._path(kind, number))

    def create(self, kind: str, number: int, value: dict[str, Any]) -> bool:
        """Write it unless it is there; whether this was the one to write it."""
        part = self._written(value)
        try:
            os.link(part, self._path(kind, number))
            return True
        except FileExistsError:
            # NFS may have done it, lost the answer and tried again.
            return part.stat().st_nlink == 2
        except FileNotFoundError:  # the last one to leave has just removed the folder
            return False
        except OSError as error:
            raise UserError(
                f"hosts of an elastic run agree by hard links, and {self.folder} has none "
                f"({error.strerror}). Give --out in another file system that all hosts share."
            ) from error
        finally:
            part.unlink(missing_ok=True)

    def remove(self, kind: str, number: int) -> None:
        """If it is there."""
        with contextlib.suppress(OSError):
            self._path(kind, number).unlink()

    def newest(self) -> Decision | None:
        """The last decision."""
        numbers = self.names("decision")
        known = self.read("decision", numbers[-1]) if numbers else None
        if known is None:
            return None
        known |= {name: tuple(known[name]) for name in ("members", "hosts")}
        return Decision(**known)

    def decide(self, decision: Decision) -> bool:
        """Whether this became the decision of that number."""
        made = self.create("decision", decision.number, dataclasses.asdict(decision))
        for number in self.names("decision")[:-KEPT]:
            self.remove("decision", number)
        return made

    def close(self) -> None:
        """Who leaves last removes all."""
        if self.names("member"):
            return
        for number in self.names("decision"):
            self.remove("decision", number)
        with contextlib.suppress(OSError):  # somebody has just come
            self.folder.rmdir()

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:06d}.json"

    def _written(self, value: dict[str, Any]) -> Path:
        part = self.folder / f".{socket.gethostname()}-{os.getpid()}-{id(self)}.part"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_text(json.dumps(value), encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"hosts of an elastic run meet in {self.folder}, which cannot be written: "
                f"{error.strerror}. Give --out in a file system that all hosts share."
            ) from error
        return part

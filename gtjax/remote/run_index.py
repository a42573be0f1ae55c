"""`RunIndex`: what a run in a store consists of, in one object that is replaced as a whole.

    run.json, run.copy.json   the same, so that one may be damaged: hashes of the files of the run,
                              which checkpoints it has, who writes to it, a number that rises

A checkpoint is part of the run from the moment that both are written and checked. Files such as
config.json are replaced in place: the index is written before them with the hash of the new and
of the old content, so a reader that comes in between, or after a crash, accepts either and
nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gtjax.remote.listing import checked_name, hashed_json, read_hashed_json
from gtjax.remote.problems import DamagedError, MissingError
from gtjax.remote.store import ObjectStore, hash_of

NAMES = ("run.copy.json", "run.json")  # in the order they are written
FORMAT, VERSION = "gtjax run", 1
Content = tuple[int, str]  # size and hash


def content_of(data: bytes) -> Content:
    """What a file is known by."""
    return len(data), hash_of(data)


@dataclass(frozen=True)
class RunIndex:
    """What belongs to a run."""

    number: int = 0  # of the change
    writer: str = ""  # the process that made it
    files: dict[str, tuple[Content, ...]] = field(default_factory=dict)  # newest content first
    checkpoints: dict[int, str] = field(default_factory=dict)  # hash of the listing of each

    @staticmethod
    def read(store: ObjectStore) -> RunIndex | None:
        """The newest index that is whole; None if there is no run."""
        found, problems = [], []
        for name in NAMES:
            try:
                found.append(RunIndex._of(read_hashed_json(store, name), store))
            except MissingError:
                continue
            except DamagedError as error:
                problems.append(error)
        if not found and problems:
            raise problems[0]
        return max(found, key=lambda index: index.number, default=None)

    def write(self, store: ObjectStore) -> None:
        """Put it in the place of what is there."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "number": self.number,
            "writer": self.writer,
            "files": self.files,
            "checkpoints": self.checkpoints,
        }
        for name in NAMES:
            store.write(name, hashed_json(content))

    @staticmethod
    def _of(content: Any, store: ObjectStore) -> RunIndex:
        try:
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"it is {content['format']!r} version {content['version']}")
            files = {
                checked_name(name): tuple((int(size), str(digest)) for size, digest in contents)
                for name, contents in content["files"].items()
            }
            checkpoints = {int(step): str(key) for step, key in content["checkpoints"].items()}
            return RunIndex(int(content["number"]), str(content["writer"]), files, checkpoints)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{store.address}/run.json is no index of a run: {error}") from error

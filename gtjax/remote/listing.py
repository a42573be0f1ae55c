"""`Listing`: what a stored folder holds, with a hash of every piece of every file and of itself.

A folder in a store counts once its listing is there, which is written last. Files above
`PIECE_BYTES` are stored in pieces, each an object of its own: an upload or download that is cut off
goes on with the piece it was at, and a piece that arrives damaged is fetched again by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from gtjax.core.hashed_files import hash_of_json
from gtjax.remote.problems import DamagedError, MissingError, WrongBytesError
from gtjax.remote.store import ObjectStore

FORMAT, VERSION = "gtjax stored files", 1
PIECE_BYTES = 32 << 20


class Piece(NamedTuple):
    """An object with some of a file, or all of it."""

    name: str
    size: int
    hash: str


@dataclass(frozen=True)
class Listing:
    """The files of a folder, by name."""

    files: dict[str, tuple[Piece, ...]]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """As JSON."""
        files = {name: [list(piece) for piece in pieces] for name, pieces in self.files.items()}
        return {
            "format": FORMAT,
            "version": VERSION,
            "about": dict(self.about),
            "files": files,
        }

    @property
    def hash(self) -> str:
        """Of all of it, hashes of files included."""
        return hash_of_json(self.content)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return sum(piece.size for piece in self.files[name])

    @staticmethod
    def read(store: ObjectStore, name: str, expected: str | None = None) -> Listing:
        """The listing of this name, with this hash if one is given; asked for again if it is wrong.

        Raises DamagedError if it stays wrong, MissingError if it is not there.
        """
        content = read_hashed_json(store, name, expected)
        try:
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"it is {content['format']!r} version {content['version']}")
            files = {
                checked_name(file): tuple(
                    Piece(checked_name(str(each[0])), int(each[1]), str(each[2])) for each in pieces
                )
                for file, pieces in content["files"].items()
            }
            return Listing(files, content["about"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{store.address}/{name} is no listing: {error}.") from error

    def write(self, store: ObjectStore, name: str) -> None:
        """Write it, after which the folder counts."""
        store.write(name, hashed_json(self.content))


def hashed_json(content: dict[str, Any]) -> bytes:
    """JSON together with its hash."""
    content = json.loads(json.dumps(content))  # as it will be read: keys are strings
    return json.dumps({"hash": hash_of_json(content), "content": content}).encode()


def read_hashed_json(store: ObjectStore, name: str, expected: str | None = None) -> Any:
    """What `hashed_json` made, checked; bytes that were changed on the way are asked for again."""
    address = f"{store.address}/{name}"

    def ask() -> Any:
        data = store.read(name)
        try:
            stored = json.loads(data)
            found, content = stored["hash"], stored["content"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WrongBytesError("it is not the JSON it was") from error
        if found != hash_of_json(content) or expected not in (None, found):
            raise WrongBytesError("its content does not give its hash")
        return content

    try:
        return store.patience.tried(address, ask)
    except DamagedError:
        # What came does not read; an object that is gone meanwhile is not damaged.
        if not store.exists(name):
            raise MissingError(f"{address} is not there.") from None
        raise


def checked_name(name: str) -> str:
    """A name that stays inside its folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name:
        raise ValueError(f"names are relative and stay inside their folder; found {name!r}")
    return name

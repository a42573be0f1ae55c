"""Download a file from a store: piece by piece, each checked, going on after a crash."""

from __future__ import annotations

import os
from pathlib import Path

from gtjax.core.errors import UserError
from gtjax.remote.listing import Piece
from gtjax.remote.store import ObjectStore, hash_of


def is_whole(path: Path, pieces: tuple[Piece, ...]) -> bool:
    """Whether a local file holds just these pieces."""
    try:
        if path.stat().st_size != sum(piece.size for piece in pieces):
            return False
        with path.open("rb") as stream:
            return all(hash_of(stream.read(piece.size)) == piece.hash for piece in pieces)
    except OSError:
        return False


def download(store: ObjectStore, pieces: tuple[Piece, ...], path: Path) -> None:
    """Fetch a file, which appears under its name when it is whole; never two processes at once.

    Raises DamagedError if the store does not hold what was written, MissingError if a piece is
    gone. Pieces that an earlier try left, and that are right, are not fetched again.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with part.open("r+b" if part.exists() else "w+b") as stream:
            for piece in pieces:
                start = stream.tell()
                if hash_of(stream.read(piece.size)) != piece.hash:
                    data = store.read_checked(*piece)
                    stream.seek(start)
                    stream.write(data)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Make room, or set GTJAX_CACHE_DIR to a "
            "folder that has it."
        ) from error

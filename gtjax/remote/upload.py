"""Upload files to a store: what is there already and right is skipped, so that a retry goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gtjax.core.progress import Progress, ignore_progress
from gtjax.remote.listing import PIECE_BYTES, Listing, Piece
from gtjax.remote.store import ObjectStore, hash_of

THREADS = 4  # each with a piece in memory


def listing_of(folder: Path, names: Iterable[str], about: dict[str, Any] | None = None) -> Listing:
    """The listing that local files will have, with their hashes."""
    files = {name: tuple(_pieces(folder, name)) for name in sorted(names)}
    return Listing(files, about or {})


def files_in(folder: Path) -> list[str]:
    """Names of all files in a folder and in those below."""
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def upload(
    store: ObjectStore, folder: Path, listing: Listing, progress: Progress = ignore_progress
) -> None:
    """Write all pieces of local files that are not in the store; the listing is left to the caller.

    Raises StoreError; what is there by then is found by the next call.
    """
    there = store.sizes()
    pieces = [
        (name, start, piece)
        for name in listing.files
        for start, piece in zip(_starts(listing.files[name]), listing.files[name], strict=True)
    ]
    total, done = sum(piece.size for *_, piece in pieces) or 1, 0

    def put(work: tuple[str, int, Piece]) -> Piece:
        name, start, piece = work
        data = _bytes(folder / name, start, piece.size)
        if there.get(piece.name) != piece.size or not store.has(piece.name, data):
            store.write(piece.name, data)
        return piece

    with ThreadPoolExecutor(THREADS, "upload") as workers:
        for piece in workers.map(put, pieces):
            done += piece.size
            progress(done / total, f"stored {piece.name}")


def _pieces(folder: Path, name: str) -> Iterator[Piece]:
    size = (folder / name).stat().st_size
    for number, start in enumerate(range(0, size, PIECE_BYTES) or (0,)):
        data = _bytes(folder / name, start, min(PIECE_BYTES, size - start))
        own = name if size <= PIECE_BYTES else f"{name}.{number:05d}"
        yield Piece(own, len(data), hash_of(data))


def _starts(pieces: tuple[Piece, ...]) -> Iterator[int]:
    start = 0
    for piece in pieces:
        yield start
        start += piece.size


def _bytes(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(size)

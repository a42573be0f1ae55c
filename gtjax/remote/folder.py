"""Folders of arrays in a store: written whole, opened by their manifest, fetched file by file.

A stored graph, partition or batch at an address is the same folder as on a disk, and a listing
(`listing.json`), which is written last and makes it count. Opening one fetches its manifest alone;
a file is fetched, and checked, when somebody asks for it, into the user's cache folder, where it is
mapped. So each process fetches what it needs, and no more.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderFormat, FolderWriter, HashedFolder
from gtjax.core.progress import Progress, ignore_progress
from gtjax.core.user_cache import user_cache
from gtjax.remote.address import address_of
from gtjax.remote.download import download
from gtjax.remote.listing import Listing
from gtjax.remote.problems import DamagedError, MissingError
from gtjax.remote.store import ObjectStore, hash_of
from gtjax.remote.upload import files_in, listing_of, upload

LISTING = "listing.json"


def cached(address: str, *names: str) -> Path:
    """Where what belongs to an address is kept on this machine."""
    return user_cache().joinpath("remote", hash_of(address.encode())[:16], *names)


def is_complete(form: FolderFormat, folder: str | Path) -> bool:
    """Whether such a folder was written there, whole."""
    address = address_of(folder)
    if address is None:
        return Path(folder, form.manifest).is_file()
    return ObjectStore.open(address).exists(LISTING)


def open_folder(form: FolderFormat, folder: str | Path) -> HashedFolder:
    """Open a folder on this machine or in a store; of the latter the manifest is fetched."""
    address = address_of(folder)
    if address is None:
        return form.open(folder)
    store = ObjectStore.open(address)
    with _remedied(form, address):
        listing = Listing.read(store, LISTING)
    local = cached(address, listing.hash[:16])

    def fetch(name: str) -> None:
        path = local / name
        with _remedied(form, address):
            if name not in listing.files:
                raise MissingError(f"{address}/{name} is not in its {LISTING}.")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Of several processes on a machine one fetches, and the others wait.
            with FileLock(path.with_name(f".{path.name}.lock")):
                if not path.is_file():
                    download(store, listing.files[name], path)

    fetch(form.manifest)
    return dataclasses.replace(form.open(local), fetch=fetch, address=address)


@contextmanager
def _remedied(form: FolderFormat, address: str) -> Iterator[None]:
    """Tell what to do about a folder that is not whole; a store that fails says so itself."""
    try:
        yield
    except (DamagedError, MissingError) as error:
        with form.remedied(address):
            raise UserError(str(error)) from error


def check_new(form: FolderFormat, folder: str | Path) -> None:
    """Refuse to take the place of something else; what a killed upload left does not count."""
    address = address_of(folder)
    if address is None:
        form.check_new(folder)
    elif ObjectStore.open(address).exists(LISTING):
        raise UserError(
            f"a {form.name} is written to a new folder; {address} is there. Remove it, or name "
            "another."
        )


@contextmanager
def written_folder(form: FolderFormat, folder: str | Path) -> Iterator[FolderWriter]:
    """Write a folder, on this machine or to a store; it is there once all went well."""
    address = address_of(folder)
    if address is None:
        with form.written(folder) as to:
            yield to
        return
    check_new(form, folder)
    base = cached(address)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="writing-", dir=base))
    try:
        with form.written(temporary / "folder") as to:
            yield to
        upload_folder(form, temporary / "folder", address)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def upload_folder(
    form: FolderFormat, local: Path, address: str, progress: Progress = ignore_progress
) -> None:
    """Copy a folder that is whole to a new one in a store; called again, it goes on."""
    check_new(form, address)
    store = ObjectStore.open(address)
    progress(0.0, "hashing")
    listing = listing_of(local, files_in(local), {"holds": form.name})
    ours = {piece.name for pieces in listing.files.values() for piece in pieces}
    others = sorted(name for name in store.sizes() if name not in ours)
    if others:
        raise UserError(
            f"a {form.name} is written to a new folder; {address} holds {others[0]}. Remove what "
            "is there, or name another."
        )
    upload(store, local, listing, progress)
    listing.write(store, LISTING)

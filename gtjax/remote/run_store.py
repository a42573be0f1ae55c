"""`RunStore`: a run in an object store, and the folder on this machine that it is worked on in.

The process that trains writes to its own folder as always, and what it wrote is stored:
`changed` notes the name of a file, `flush` stores all that were noted. A checkpoint is stored under
the hash of its content, file by file, and counts once the index has it (`run_index`); only then
is an older one removed. Others, also on other machines, read the store and never that folder.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import threading
import uuid
from pathlib import Path

from filelock import FileLock

from gtjax.core.errors import UserError
from gtjax.remote.download import download, is_whole
from gtjax.remote.folder import cached
from gtjax.remote.listing import Listing
from gtjax.remote.problems import DamagedError, MissingError, StoreError, WrongBytesError
from gtjax.remote.run_index import NAMES, Content, RunIndex, content_of
from gtjax.remote.store import ObjectStore
from gtjax.remote.upload import files_in, listing_of, upload

CHECKPOINTS, FILES = "checkpoints", "files.json"
_OWN_FOLDER = re.compile(r"checkpoints/(\d+-[0-9a-f]+)/")


class RunStore:
    """One run: `local` is where its files are on this machine."""

    def __init__(self, address: str, *, writes: bool):
        self.address, self.writes = address, writes
        self.local = cached(address, "written" if writes else "read")
        self._store = ObjectStore.open(address)
        self._writer = uuid.uuid4().hex
        self._index: RunIndex | None = None  # as this process wrote it
        self._number = 0
        self._changed: set[str] = set()
        self._lock = threading.RLock()  # checkpoints are stored by a thread of their own

    @staticmethod
    def exists(address: str) -> bool:
        """Whether there is a run."""
        return RunIndex.read(ObjectStore.open(address)) is not None

    @staticmethod
    def find(address: str) -> list[str]:
        """Addresses of the runs there, but for those that are part of another."""
        found: list[str] = []
        store = ObjectStore.open(address)
        for name in sorted(store.sizes(), key=lambda name: (name.count("/"), name)):
            folder, _, file = f"{store.address}/{name}".rpartition("/")
            if file == NAMES[-1] and not any(folder.startswith(f"{each}/") for each in found):
                found.append(folder)
        return sorted(found)

    @staticmethod
    def steps_at(address: str) -> list[int]:
        """The steps there are checkpoints of, newest first."""
        index = RunIndex.read(ObjectStore.open(address))
        return [] if index is None else sorted(index.checkpoints, reverse=True)

    def create(self) -> None:
        """Begin a new run in an empty folder of this machine; the address is taken from here on."""
        if RunIndex.read(self._store) is not None:
            raise UserError(
                f"--out names a new folder; {self.address} holds a run. Remove it, or name another."
            )
        self._empty()
        self._commit(RunIndex())

    def pull(self) -> bool:
        """Bring the files of the run here, but for checkpoints; False if there is no run.

        To write is to be the only one: a process that wrote before is refused from here on.
        """
        index = RunIndex.read(self._store)
        if index is None:
            return False
        if self.writes:
            self._empty()
            self._commit(index)
        self.local.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.local.with_name(f"{self.local.name}.lock")):
            found = {name: (self._bring(name, index),) for name in index.files}
            if self.writes:
                self._index = dataclasses.replace(self._written_index, files=found)
            for path in (self.local / name for name in files_in(self.local)):
                name = path.relative_to(self.local).as_posix()
                if name not in index.files and not name.startswith((CHECKPOINTS, ".")):
                    path.unlink()
        return True

    def changed(self, name: str) -> None:
        """A file of the run was written anew, or removed."""
        with self._lock:
            self._changed.add(name)

    def flush(self) -> None:
        """Store what has changed."""
        with self._lock:
            self._flush({})

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, newest first."""
        if self._index is not None:
            return sorted(self._index.checkpoints, reverse=True)
        return self.steps_at(self.address)

    def push_checkpoint(self, step: int) -> None:
        """Store the checkpoint of a step that is whole on this machine, and with it all changes."""
        folder = self.local / CHECKPOINTS / str(step)
        listing = listing_of(folder, files_in(folder), {"step": step})
        store = self._store.within(_folder_of(step, listing.hash))
        upload(store, folder, listing)
        listing.write(store, FILES)
        with self._lock:
            self._flush({step: listing.hash})

    def fetch_checkpoint(self, step: int) -> None:
        """Bring a checkpoint here, every file checked; raises DamagedError if that cannot be."""
        index = self._index or RunIndex.read(self._store)
        key = None if index is None else index.checkpoints.get(step)
        if key is None:
            raise DamagedError(f"{self.address} has no checkpoint of step {step}.")
        folder, store = self.local / CHECKPOINTS, self._store.within(_folder_of(step, key))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.local.with_name(f"{self.local.name}.lock")):
            try:
                listing = Listing.read(store, FILES, key)
                target, fetched = folder / str(step), folder / f"{step}.fetched-{key[:8]}"
                if _is_copy(target, listing):
                    return
                for name, pieces in listing.files.items():
                    if not is_whole(fetched / name, pieces):
                        download(store, pieces, fetched / name)
            except MissingError as error:
                raise DamagedError(f"the checkpoint of step {step} lacks a file: {error}") from None
            shutil.rmtree(target, ignore_errors=True)
            fetched.rename(target)
            self._forget_others(folder, index)

    def remove_checkpoints(self, steps: set[int]) -> None:
        """Take checkpoints out of the run, then remove their files, and those of none."""
        with self._lock:
            index = self._written_index
            if steps & set(index.checkpoints):
                left = {s: key for s, key in index.checkpoints.items() if s not in steps}
                self._commit(dataclasses.replace(index, checkpoints=left))
            index = self._written_index
        kept = {_folder_of(step, key) for step, key in index.checkpoints.items()}
        names = (f"{CHECKPOINTS}/{name}" for name in self._store.within(CHECKPOINTS).sizes())
        own = ((name, _OWN_FOLDER.match(name)) for name in names)
        others = [n for n, found in own if found and f"{CHECKPOINTS}/{found[1]}" not in kept]
        self._store.remove(*others)

    def _flush(self, checkpoints: dict[int, str]) -> None:
        """Files first, then the checkpoint: it comes with metrics up to its step."""
        index = self._written_index
        files, new, other = dict(index.files), {}, {}
        for name in sorted(self._changed):
            path = self.local / name
            if not path.is_file():
                files.pop(name, None)
                continue
            data = path.read_bytes()
            content = content_of(data)
            if files.get(name) != (content,):
                (other if name in files else new)[name] = data
                # What may be there until this is: all that is not known to be replaced.
                files[name] = (content, *files.get(name, ()))
        self._put(new)  # so that the index never names what is not there
        if files != index.files:
            self._commit(dataclasses.replace(index, files=files))
            self._put(other)
            settled = {name: contents[:1] for name, contents in files.items()}
            self._index = dataclasses.replace(self._written_index, files=settled)
        if checkpoints:
            index = self._written_index
            known = index.checkpoints | checkpoints
            self._commit(dataclasses.replace(index, checkpoints=known))
        self._store.remove(*(self._changed - set(files)))
        self._changed.clear()

    def _put(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            self._store.write(name, data)

    @property
    def _written_index(self) -> RunIndex:
        if self._index is None:
            raise AssertionError("only who has created or pulled the run to write it writes")
        return self._index

    def _commit(self, index: RunIndex) -> None:
        """Replace the index, unless somebody else has meanwhile."""
        if self._index is not None:
            there = RunIndex.read(self._store)
            if there is None or there.writer != self._writer:
                raise StoreError(
                    f"{self.address} was taken over by another process, or removed: this one "
                    "stores nothing any more. Let one process train a run."
                )
        self._number = max(self._number, index.number) + 1  # also after a try that failed
        index = dataclasses.replace(index, number=self._number, writer=self._writer)
        index.write(self._store)
        self._index = index

    def _bring(self, name: str, index: RunIndex) -> Content:
        """A file of the run, and which of its contents it has."""
        path, contents = self.local / name, index.files[name]
        if path.is_file() and (here := content_of(path.read_bytes())) == contents[0]:
            return here

        def ask() -> bytes:
            found = self._store.read(name)
            if content_of(found) not in contents:
                raise WrongBytesError("its hash is not that of what was written")
            return found

        data = self._store.patience.tried(f"{self.address}/{name}", ask)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(data)
        part.replace(path)
        return content_of(data)

    def _empty(self) -> None:
        shutil.rmtree(self.local, ignore_errors=True)
        self.local.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _forget_others(self, folder: Path, index: RunIndex | None) -> None:
        """On this machine, of a run that is only read: keep what the store has."""
        known = set() if index is None else {str(step) for step in index.checkpoints}
        for path in folder.iterdir() if not self.writes else ():
            if path.name not in known:
                shutil.rmtree(path, ignore_errors=True)


def _folder_of(step: int, key: str) -> str:
    return f"{CHECKPOINTS}/{step}-{key[:16]}"


def _is_copy(folder: Path, listing: Listing) -> bool:
    """Whether a folder of this machine holds just these files."""
    if not folder.is_dir() or set(files_in(folder)) != set(listing.files):
        return False
    return all(is_whole(folder / name, pieces) for name, pieces in listing.files.items())

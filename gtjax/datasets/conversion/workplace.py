"""The folder that a conversion works in, and its journal: what is done for good after a crash.

    .NAME.converting/          beside FOLDER/NAME, and renamed to it when everything is there
    .NAME.converting/work/     journal.json, and files that are only needed on the way

The journal is replaced as a whole, after all that it speaks of was synced to the disk; whoever
comes back finds it as it was after some commit, and forgets what was written later. Disks are
slower than sorting, so commits on the way are waited for by a thread of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError
from gtjax.core.hashed_files import hash_of_json

JOURNAL = "journal.json"
SECONDS = 3.0  # between commits, each of which waits for the disk


class Workplace:
    """A folder that is filled in several goes."""

    def __init__(self, folder: Path, source: str):
        """Open what was left for the same source, or start anew."""
        self.target = folder
        self.folder = folder.parent / f".{folder.name}.converting"
        self.work = self.folder / "work"
        self.source = source
        self.state: dict[str, Any] = {}
        self.resumed = False
        self._last = time.monotonic()
        self._pending: Future | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[Workplace]:
        """Hold the folder; another process that wants it is refused."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / f"{self.folder.name}.lock").open("w") as lock:
            _hold(lock, self.target)
            found = self._read()
            if found is None:
                self.start_over()
            else:
                self.state, self.resumed = found, bool(found)
            try:
                with ThreadPoolExecutor(1) as self._committer:  # which waits for it at its end
                    yield self
            finally:
                Path(lock.name).unlink(missing_ok=True)

    def start_over(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.state = {}
        self.commit()

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_due(self) -> bool:
        """Whether it is time to commit."""
        waits = self._pending is not None and not self._pending.done()
        return not waits and time.monotonic() - self._last >= SECONDS

    def commit(self, *sync: Callable[[], None], soon: bool = False, **changes: Any) -> None:
        """Make it known for good that these parts of the state have changed, once all is synced.

        soon: return at once; nothing that is to be synced may be closed before `wait`.
        """
        self.wait()
        self.state |= changes
        if soon:
            self._pending = self._committer.submit(self._write, sync, dict(self.state))
        else:
            self._write(sync, self.state)

    def wait(self) -> None:
        """Return once all commits are made."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, sync: Iterable[Callable[[], None]], state: dict[str, Any]) -> None:
        for each in sync:
            each()
        content = {"source": self.source, "state": state}
        temporary = self.work / "journal.new"
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump({"hash": hash_of_json(content), "content": content}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.work / JOURNAL)
        sync_folder(self.work)
        self._last = time.monotonic()

    def _read(self) -> dict[str, Any] | None:
        """The state that was committed last for this source, or None."""
        try:
            stored = json.loads((self.work / JOURNAL).read_bytes())
            content = stored["content"]
            intact = stored["hash"] == hash_of_json(content)
            return content["state"] if intact and content["source"] == self.source else None
        except (OSError, ValueError, KeyError, TypeError):
            return None


def sync_folder(folder: Path) -> None:
    """Return once the names in a folder are on the disk."""
    if os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def syncs(paths: Iterable[Path]) -> list[Callable[[], None]]:
    """What returns once each of these files is on the disk, for `Workplace.commit`."""
    return [lambda path=path: _sync_file(path) for path in paths]


def _sync_file(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _hold(lock: Any, target: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f"another process is converting to {target}. Wait for it, or name another folder."
        ) from error

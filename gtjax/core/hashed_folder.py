"""A folder of arrays and a manifest of them: written whole, checked when it is read.

    FOLDER/<manifest>        JSON: format, version, what its writer says, and "files": the hash of
                             every array; together with a hash of itself
    FOLDER/<any>/<name>.npy  the arrays

For all that is computed once and read by several processes, or again later: stored partitions,
sharded batches, positional encodings. A folder appears under its name only once it is complete.
Opening one reads the manifest alone; an array is read once, to check its hash, and mapped. What is
truncated, changed or missing is an error that names the file and the remedy, never wrong numbers.
Where reading all of it would take minutes, `mapped` checks size, shape and type only, and `verify`
the hashes when they are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.hashed_files import (
    hash_of_file,
    map_array,
    map_unread,
    read_manifest,
    save_array,
    write_manifest,
    written_whole,
)
from gtjax.core.progress import Progress, ignore_progress


@dataclass(frozen=True)
class FolderFormat:
    """A kind of folder."""

    name: str  # that its manifest states
    version: int
    manifest: str  # name of the file
    remedy: str  # for a folder that cannot be used, for which "{folder}" stands
    mode: int = 0o700  # who may read it

    def check_new(self, folder: str | Path) -> None:
        """Refuse to take the place of something else."""
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"a {self.name} is written to a new folder; {folder} is there. Remove it, or name "
                "another."
            )

    @contextmanager
    def written(self, folder: str | Path) -> Iterator[FolderWriter]:
        """Write a folder, which is new or empty, and is there once all went well."""
        with written_whole(Path(folder), self.mode) as temporary:
            self.check_new(folder)
            writer = FolderWriter(temporary, self.mode)
            yield writer
            known = {"format": self.name, "version": self.version}
            content = {**writer.content, **known, "files": writer.hashes}
            write_manifest(temporary / self.manifest, content)

    def seal(
        self,
        temporary: Path,
        paths: Iterable[Path],
        content: dict[str, Any],
        progress: Progress = ignore_progress,
    ) -> None:
        """Write the manifest of a folder whose arrays are all there: hashes, shapes and types.

        For what is too large for `written`: whoever fills `temporary` can go on after a crash, and
        renames it to its own name when this is done.
        """
        paths = sorted(paths)
        total, done = sum(path.stat().st_size for path in paths) or 1, 0
        hashes, arrays = {}, {}
        with ThreadPoolExecutor(2) as workers:  # hashing lets other threads run
            for path, digest in zip(paths, workers.map(hash_of_file, paths), strict=True):
                name = path.relative_to(temporary).as_posix()
                values = np.load(path, mmap_mode="r", allow_pickle=False)
                hashes[name] = digest
                arrays[name] = {"shape": list(values.shape), "dtype": values.dtype.str}
                done += path.stat().st_size
                progress(done / total, f"hashed {name}")
        known = {"format": self.name, "version": self.version, "arrays": arrays}
        write_manifest(temporary / self.manifest, {**content, **known, "files": hashes})

    def open(self, folder: str | Path) -> HashedFolder:
        """Open what was written; arrays are checked and mapped later, one by one."""
        folder = Path(folder)
        with self.remedied(folder):
            content = read_manifest(folder / self.manifest, self.name, self.version)
        return HashedFolder(self, folder, content)

    @contextmanager
    def remedied(self, folder: str | Path) -> Iterator[None]:
        """Tell what to do in every UserError about this folder."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{error} {self.remedy.format(folder=folder)}") from error


@dataclass
class FolderWriter:
    """A folder that is being written; `content` is for what its manifest has to say."""

    _folder: Path
    _mode: int
    content: dict[str, Any] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it is until it is complete."""
        return self._folder

    def array(self, name: str, values: np.ndarray) -> None:
        """Write an array as the file `name`, such as "part-00003/x.npy"."""
        path = self._folder / name
        path.parent.mkdir(mode=self._mode, exist_ok=True)
        self.hashes[name] = save_array(path, values)


@dataclass(frozen=True)
class HashedFolder:
    """A folder that is complete; one in an object store is brought here file by file."""

    format: FolderFormat
    path: Path
    content: dict[str, Any]
    fetch: Callable[[str], None] | None = None  # brings a file of this name to `path`
    address: str | None = None  # where the folder is, if it is not `path`

    def __contains__(self, name: str) -> bool:
        """Whether an array of this name was written."""
        return name in self.content["files"]

    def array(
        self, name: str, shape: tuple[int, ...] | None = None, dtype: np.dtype | None = None
    ) -> np.ndarray:
        """Check an array and map it, read-only; shape and type have to be these, if given."""
        path = self._here(name)
        with self.remedied():
            return map_array(path, self.content["files"][name], shape, dtype)

    def mapped(self, name: str) -> np.ndarray:
        """Map an array of a sealed folder, read-only, after a look at its size, shape and type."""
        path = self._here(name)
        with self.remedied():
            known = self.content["arrays"][name]
            return map_unread(path, tuple(known["shape"]), np.dtype(known["dtype"]))

    def verify(self, progress: Progress = ignore_progress) -> None:
        """Read every file and hold it against its hash."""
        names = sorted(self.content["files"])
        with ThreadPoolExecutor(2) as workers:
            checks = workers.map(self._check, names)
            for number, name in enumerate(names, start=1):
                next(checks)
                progress(number / len(names), f"checked {name}")

    def _check(self, name: str) -> None:
        self.array(name)

    def _here(self, name: str) -> Path:
        """The file of an array, fetched if it has to be."""
        with self.remedied():
            if name not in self:
                raise UserError(f"{self.path / name} is not in {self.format.manifest}.")
        if self.fetch is not None:
            self.fetch(name)
        return self.path / name

    def remedied(self) -> AbstractContextManager[None]:
        """See `FolderFormat.remedied`."""
        return self.format.remedied(self.address or self.path)

"""Unpack an untrusted zip or tar: inside its folder, up to a size, all of it or nothing.

Refused: absolute names, `..`, links, devices, more members or bytes than `Limits` allow, whether
declared or found while unpacking. The folder appears under its name once it is complete.
"""

from __future__ import annotations

import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from gtjax.core.errors import GraphFormatError, UserError
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing

_CHUNK_BYTES = 1 << 20
_RULE = "a readable zip or tar archive"


@dataclass(frozen=True)
class _Member:
    """One entry of either kind of archive; `key` is what opens it there."""

    name: str
    declared_bytes: int
    is_folder: bool
    key: zipfile.ZipInfo | tarfile.TarInfo


def extract(archive: Path, folder: Path, limits: Limits) -> None:
    """Unpack `archive` as the new folder `folder`."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with parsing("archive", _RULE, tarfile.TarError):
            _extract_into(archive, temporary, limits)
        temporary.chmod(0o755)  # mkdtemp makes folders private
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _extract_into(archive: Path, folder: Path, limits: Limits) -> None:
    opener = _opened_zip if zipfile.is_zipfile(archive) else _opened_tar
    with opener(archive) as (members, open_member):
        count, declared, written = 0, 0, 0
        for member in members:
            count += 1
            declared += member.declared_bytes
            if count > limits.max_members:
                raise GraphFormatError(
                    "members", f"at most {limits.max_members}", f"{count} or more"
                )
            _check_size(declared, limits)
            target = _target(member.name, folder)
            if member.is_folder:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_member(member.key) as source, target.open("xb") as file:
                while data := source.read(_CHUNK_BYTES):
                    written += len(data)
                    _check_size(written, limits)
                    _write(file, data)


def _write(file: IO[bytes], data: bytes) -> None:
    try:
        file.write(data)
    except OSError as error:  # a full disk says nothing about the archive
        advice = "Free some space, or set GTJAX_CACHE_DIR to another disk."
        raise UserError(f"cannot write {file.name}: {error}. {advice}") from error


def _target(name: str, folder: Path) -> Path:
    """The path of a member, which must lie inside the folder on every system."""
    pure = PurePosixPath(name)
    if (
        pure.is_absolute()
        or ".." in pure.parts
        or any(c in name for c in "\\:\0")
        or not pure.parts
    ):
        raise GraphFormatError("members", "names stay inside the archive's folder", name)
    return folder.joinpath(*pure.parts)


def _check_size(num_bytes: int, limits: Limits) -> None:
    if num_bytes > limits.max_download_bytes:
        rule = f"unpacks to at most {limits.max_download_bytes} bytes (Limits.max_download_bytes)"
        raise GraphFormatError("archive", rule, f"{num_bytes} bytes or more")


@contextmanager
def _opened_zip(archive: Path) -> Iterator[tuple]:
    with zipfile.ZipFile(archive) as file:

        def members() -> Iterator[_Member]:
            for info in file.infolist():
                mode = info.external_attr >> 16
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise GraphFormatError("members", "plain files and folders", info.filename)
                yield _Member(info.filename, info.file_size, info.is_dir(), info)

        yield members(), file.open


@contextmanager
def _opened_tar(archive: Path) -> Iterator[tuple]:
    with tarfile.open(archive) as file:

        def members() -> Iterator[_Member]:
            for info in file:
                if not (info.isreg() or info.isdir()):
                    raise GraphFormatError("members", "plain files and folders", info.name)
                yield _Member(info.name, info.size, info.isdir(), info)

        def open_member(info: tarfile.TarInfo) -> IO[bytes]:
            source = file.extractfile(info)
            assert source is not None, "a regular file"
            return source

        yield members(), open_member

"""Files that are checked when they are read: arrays against a hash, a manifest against its own.

What is truncated, changed or missing is an error that names the file, never wrong numbers. Whole
folders of them: see `hashed_folder`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gtjax.core.errors import UserError


@contextmanager
def written_whole(folder: Path, mode: int = 0o700) -> Iterator[Path]:
    """A folder to write to, which takes the place of `folder`, new or empty, when all went well."""
    temporary = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        yield temporary
        temporary.chmod(mode)
        temporary.replace(folder)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}.") from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def save_array(path: Path, values: np.ndarray) -> str:
    """Write a new .npy file, and give the hash of it."""
    with path.open("xb") as stream:
        hashing = _Hashing(stream)
        np.save(hashing, values.view(_dtype_on_disk(values.dtype)), allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
    return hashing.digest.hexdigest()


def map_array(
    path: Path,
    expected: str,
    shape: tuple[int, ...] | None = None,
    dtype: np.dtype | None = None,
) -> np.ndarray:
    """Map a .npy file that has this hash and holds an array of this shape and type, if given."""
    try:
        intact = hash_of_file(path) == expected
        values = np.load(path, mmap_mode="r", allow_pickle=False) if intact else None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not a .npy file of numbers: {error}.") from error
    if values is None:
        raise UserError(f"{path} is damaged: its hash is not that of what was written.")
    shape = values.shape if shape is None else shape
    kept = values.dtype if dtype is None else _dtype_on_disk(dtype)
    if (values.shape, values.dtype) != (shape, kept):
        raise UserError(f"{path} has {kept} of shape {shape}; found {values.dtype} {values.shape}.")
    return values if dtype is None else values.view(dtype)


def map_unread(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Map a .npy file whose size and header say that it holds this; its values are not read."""
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            if version != (1, 0):
                raise ValueError(f"its format is {version}")
            found, fortran, kept = np.lib.format.read_array_header_1_0(stream)
            start, size = stream.tell(), os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not a .npy file of numbers: {error}.") from error
    wanted = start + math.prod(shape) * dtype.itemsize
    if (found, kept, fortran, size) != (shape, dtype, False, wanted):
        raise UserError(
            f"{path} has {dtype} of shape {shape} in {wanted} bytes; found {kept} {found} in "
            f"{size}."
        )
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    mapped = np.memmap(path, dtype, "r", offset=start, shape=shape)
    return mapped.view(np.ndarray)


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Write JSON together with its hash."""
    content = json.loads(json.dumps(content))  # as it will be read: keys are strings
    with path.open("x", encoding="utf-8") as stream:
        json.dump({"hash": hash_of_json(content), "content": content}, stream)
        stream.flush()
        os.fsync(stream.fileno())


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The content of a manifest whose "format" and "version" are these."""
    try:
        stored = json.loads(path.read_bytes())
        content = stored["content"]
        intact = stored["hash"] == hash_of_json(content)
        found = (content["format"], content["version"])
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it is not the JSON it was.") from error
    if not intact:
        raise UserError(f"{path} is damaged: its content does not give its hash.")
    if found != (kind, version):
        raise UserError(
            f"{path} is {found[0]!r} version {found[1]}; this gtjax reads {kind!r} version "
            f"{version}."
        )
    return content


class _Hashing:
    """A file that is hashed while it is written."""

    def __init__(self, stream: Any):
        self._stream, self.digest = stream, new_digest()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _dtype_on_disk(dtype: np.dtype) -> np.dtype:
    """Types that numpy does not know itself, as bfloat16, are stored as integers of their size."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


def hash_of_file(path: Path) -> str:
    """Of all its bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, new_digest).hexdigest()


def hash_of_json(content: Any) -> str:
    """Of what it says, in whatever order."""
    digest = new_digest()
    digest.update(json.dumps(content, sort_keys=True).encode())
    return digest.hexdigest()


def new_digest() -> hashlib.blake2b:
    """The hash that all stored files are checked by."""
    return hashlib.blake2b(digest_size=16)

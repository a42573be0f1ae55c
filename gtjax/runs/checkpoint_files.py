"""One checkpoint on disk: numbers written by orbax, and a manifest of what they have to be.

    FOLDER/120/arrays     orbax's files: all arrays one after the other, as bytes
    FOLDER/120/manifest   hash, shape and type of every array, the step, what the run says of itself

Orbax notices files that are cut off or missing, but not a bit that has changed in an array. So
every array is hashed before it is written and after it is read, and the manifest holds a hash of
itself. Orbax is given one array of bytes because, when it fails at one of several, it leaves the
others to complain on the console. They are not compressed: weights are as good as random.

A checkpoint appears under its number only once it is complete; what a killed process leaves has a
longer name. All processes hold the same values, so one writes and each reads, without waiting for
the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.hashed_files import hash_of_json

MANIFEST = "manifest"
FORMAT = "gtjax checkpoint"
VERSION = 1
ALIGNMENT = 64


class DamagedCheckpointError(UserError):
    """A checkpoint that does not hold what was written."""


class Packed(NamedTuple):
    """Arrays one after the other, as bytes."""

    layouts: list[dict[str, Any]]
    data: np.ndarray


def layout(leaf: Any) -> dict[str, Any]:
    """Shape and type of an array, as a manifest states them."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def layouts(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Shape and type of every array in a manifest."""
    return [{"shape": each["shape"], "dtype": each["dtype"]} for each in manifest["arrays"]]


def pack(leaves: Sequence[Any]) -> Packed:
    """Copies of arrays, of jax or numpy, on the host."""
    # One device has all of it; and a view of that, unlike the array, keeps no copy for later.
    views = [x.addressable_data(0) if isinstance(x, jax.Array) else x for x in leaves]
    for view in views:
        if isinstance(view, jax.Array):
            view.copy_to_host_async()
    described = [layout(view) for view in views]
    data = np.zeros(_size(described), np.uint8)
    for target, view in zip(_unpacked(described, data), views, strict=True):
        target[...] = view
    return Packed(described, data)


def steps_in(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder, newest first."""
    try:
        found = [int(path.name) for path in folder.iterdir() if _is_step(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    return sorted(found, reverse=True)


def write_checkpoint(folder: Path, step: int, packed: Packed, about: Mapping[str, Any]) -> None:
    """Write a checkpoint, in place of one of the same step; if this fails, that one stays."""
    folder.mkdir(parents=True, exist_ok=True)
    _clean_up(folder)
    from gtjax.runs import orbax_files  # half a second, which the first step does not wait for

    content = {
        "format": FORMAT,
        "version": VERSION,
        "step": step,
        "written_at": time.time(),
        "about": about,
        "arrays": _hashed(packed),
    }
    manifest = {"hash": hash_of_json(content), "content": content}
    target, replaced = folder / str(step), folder / f"{step}.replaced"
    if target.exists():
        target.rename(replaced)
    try:
        orbax_files.save(folder, step, packed.data, manifest)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong first is what counts
            if replaced.exists():
                replaced.rename(target)
            _clean_up(folder)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def remove_checkpoint(folder: Path, step: int) -> None:
    """Remove a checkpoint; killed meanwhile, it leaves none that is half there."""
    aside = folder / f"{step}.removed"
    (folder / str(step)).rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def read_manifest(folder: Path, step: int) -> dict[str, Any]:
    """The manifest of a checkpoint, checked against its own hash."""
    path = folder / str(step)
    if (path / "default").exists() and not (path / MANIFEST).exists():
        raise _damaged(path, "it has no manifest, as those of an earlier gtjax. Start a new run")
    try:
        stored = json.loads((path / MANIFEST / "metadata").read_bytes())
        content = stored["content"]
        intact = stored["hash"] == hash_of_json(content)
    except Exception as error:
        raise _damaged(path, f"its manifest cannot be read: {reason(error)}") from error
    if not intact:
        raise _damaged(path, "its manifest does not give its hash")
    if (content["format"], content["version"]) != (FORMAT, VERSION):
        raise UserError(
            f"{path} is {content['format']!r} version {content['version']}; this gtjax reads "
            f"{FORMAT!r} version {VERSION}"
        )
    if content["step"] != step:
        raise _damaged(path, f"it is the checkpoint of step {content['step']}")
    return content


def read_arrays(folder: Path, step: int, manifest: Mapping[str, Any]) -> list[np.ndarray]:
    """The arrays of a checkpoint, each checked against the manifest."""
    from gtjax.runs import orbax_files

    path, described = folder / str(step), layouts(manifest)
    try:
        data = orbax_files.restore(path / orbax_files.ARRAYS)
    except Exception as error:  # orbax and tensorstore raise all kinds
        raise _damaged(path, reason(error)) from error
    if (data.shape, data.dtype) != ((_size(described),), np.uint8):
        raise _damaged(path, f"it holds {data.nbytes} bytes instead of {_size(described)}")
    for number, hashed in enumerate(_hashed(Packed(described, data))):
        if hashed != manifest["arrays"][number]:
            raise _damaged(path, f"array {number} does not give its hash")
    return list(_unpacked(described, data))


def reason(error: BaseException) -> str:
    """What went wrong, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).strip()
    # Of tensorstore's long messages, what the operating system said.
    if said := re.search(r"os_error_code='(\d+)'", text):
        return os.strerror(int(said[1]))
    line = text.splitlines()[0] if text else type(error).__name__
    return line if len(line) <= 200 else line[:197] + "..."


def _clean_up(folder: Path) -> None:
    """Remove what was being written or removed when a process was killed."""
    for path in folder.iterdir():
        if re.match(r"\d+\.", path.name):
            shutil.rmtree(path, ignore_errors=True)


def _is_step(path: Path) -> bool:
    return bool(re.fullmatch(r"0|[1-9]\d*", path.name, re.ASCII)) and path.is_dir()


def _damaged(path: Path, why: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path} is damaged: {why}")


def _bytes_of(described: Mapping[str, Any]) -> int:
    return math.prod(described["shape"]) * np.dtype(described["dtype"]).itemsize


def _ends(described: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Where each array begins and ends."""
    begin = 0
    for each in described:
        yield begin, begin + _bytes_of(each)
        begin += -(-_bytes_of(each) // ALIGNMENT) * ALIGNMENT


def _size(described: Sequence[Mapping[str, Any]]) -> int:
    return max((end for _, end in _ends(described)), default=0)


def _unpacked(described: Sequence[Mapping[str, Any]], data: np.ndarray) -> Iterator[np.ndarray]:
    for each, (begin, end) in zip(described, _ends(described), strict=True):
        yield data[begin:end].view(np.dtype(each["dtype"])).reshape(each["shape"])


def _hashed(packed: Packed) -> list[dict[str, Any]]:
    """The layout of each array, and a hash of its bytes."""
    return [
        {**each, "hash": hashlib.blake2b(packed.data[begin:end].data, digest_size=16).hexdigest()}
        for each, (begin, end) in zip(packed.layouts, _ends(packed.layouts), strict=True)
    ]

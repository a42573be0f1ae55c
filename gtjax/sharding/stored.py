"""Sharded arrays in a folder, so that each host reads the shards of its own devices and no others.

    FOLDER/stored.json          what is stored, for which mesh; the tree, with the shape and type of
                                every array; hashes of all files
    FOLDER/shard-00003/12.npy   shard 3 of array 12

One process writes, with `StoreWriter` in the place of `place_rows` and its siblings: it holds one
shard of one array at a time. Shards are numbered by their place in the array: rows are cut over
all devices, parts along the node axis only, so the devices of a part share a file. The shape of the
mesh has to be the same when they are read; which process has which device may change. A file is
checked when it is read, and mapped; see `gtjax.core.hashed_folder`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from gtjax.core.errors import UserError
from gtjax.core.hashed_folder import FolderFormat, FolderWriter, HashedFolder
from gtjax.remote.folder import is_complete, open_folder, written_folder
from gtjax.sharding.abstract import abstract_everywhere, abstract_parts, abstract_rows
from gtjax.sharding.place import rows_by_number
from gtjax.sharding.specs import BY_PART, BY_ROW, EVERYWHERE
from gtjax.sharding.tree_json import from_json, to_json
from gtjax.strategies import FEATURE

FORMAT = FolderFormat(
    name="gtjax store of arrays",
    version=2,
    manifest="stored.json",
    remedy="Remove {folder}: it is made again.",
)
SPECS = {"row": BY_ROW, "part": BY_PART, "all": EVERYWHERE}


@dataclass(frozen=True)
class StoredArray:
    """One array of the tree: what it is, and where its shards are."""

    number: int
    by: str  # "row" or "part": along which axes of the mesh it is cut; "all": it is not
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        sizes = (self.number, *self.shape)
        if self.by not in SPECS or any(type(size) is not int or size < 0 for size in sizes):
            raise ValueError(f"array {self.number} is cut by {self.by}, its shape is {self.shape}")
        np.dtype(self.dtype)

    def file(self, shard: int) -> str:
        """Where a shard is, within the folder."""
        return f"shard-{shard:05d}/{self.number}.npy"

    def shards(self, mesh: Mesh) -> int:
        """How many different shards it has."""
        if self.by == "all":
            return 1
        return mesh.size if self.by == "row" else mesh.size // mesh.shape[FEATURE]


class StoreWriter:
    """Takes the calls of `place_rows` and its siblings, and writes what they would place.

    `part`: of all of it, the shards of this part alone, and with part 0 what is not cut at all.
    """

    def __init__(self, to: FolderWriter, part: int | None = None):
        self._to, self._written, self._part = to, 0, part

    def rows(
        self,
        mesh: Mesh,
        number_pr: np.ndarray,
        source: np.ndarray,
        fill: Any = 0,
        change: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
    ) -> StoredArray:
        """As `place_rows`."""
        _, shard = rows_by_number(number_pr, source, fill, change)
        return self._write(mesh, "row", abstract_rows(mesh, number_pr, source, fill, change), shard)

    def parts(self, mesh: Mesh, arrays: Any) -> Any:
        """As `place_parts`."""
        return jax.tree.map(
            lambda x, like: self._write(mesh, "part", like, lambda some: x[some]),
            arrays,
            abstract_parts(mesh, arrays),
        )

    def everywhere(self, mesh: Mesh, array: np.ndarray) -> StoredArray:
        """As `place_everywhere`, of one array."""
        return self._write(mesh, "all", abstract_everywhere(mesh, array), lambda some: array[some])

    def _write(
        self,
        mesh: Mesh,
        by: str,
        like: jax.ShapeDtypeStruct,
        shard: Callable[[slice], np.ndarray],
    ) -> StoredArray:
        array = StoredArray(self._written, by, tuple(like.shape), like.dtype.name)
        self._written += 1
        rows = array.shape[0] // array.shards(mesh)
        for number in range(array.shards(mesh)):
            a_part = 1 if by == "part" else mesh.shape[FEATURE]  # shards of each
            if self._part is not None and (0 if by == "all" else number // a_part) != self._part:
                continue
            values = shard(slice(number * rows, (number + 1) * rows))
            self._to.array(array.file(number), values.astype(like.dtype, copy=False))
            del values  # before the next is gathered
        return array


@dataclass(frozen=True)
class Store:
    """Sharded arrays on disk; `place` puts a process's shards on its devices."""

    files: HashedFolder
    holds: str  # what kind of tree it is
    about: dict[str, Any]  # what it was made from, as the writer said
    mesh: dict[str, int]
    tree: Any  # of `StoredArray`

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.files.path

    def place(self, mesh: Mesh) -> Any:
        """The arrays on the devices of a mesh, as `place_rows` and its siblings give them."""
        if dict(mesh.shape) != self.mesh:
            with self.files.remedied():
                raise UserError(
                    f"{self.folder / FORMAT.manifest} is for a mesh of {_sizes(self.mesh)}; this "
                    f"mesh is {_sizes(dict(mesh.shape))}."
                )
        return jax.tree.map(lambda array: self._placed(mesh, array), self.tree)

    def _placed(self, mesh: Mesh, array: StoredArray) -> jax.Array:
        sharding, count = NamedSharding(mesh, SPECS[array.by]), array.shards(mesh)
        shape, dtype = (array.shape[0] // count, *array.shape[1:]), np.dtype(array.dtype)
        placed, last, values = [], None, np.empty(0)
        for position, device in enumerate(mesh.devices.flat):
            if device not in sharding.addressable_devices:
                continue
            shard = position * count // mesh.size
            if shard != last:  # devices that share a shard stand next to each other
                last, values = shard, np.asarray(self.files.array(array.file(shard), shape, dtype))
            # A CPU would use the mapped file as its memory, whatever `may_alias` says.
            own = values.copy() if device.platform == "cpu" else values
            placed.append(jax.device_put(own, device).block_until_ready())
        return jax.make_array_from_single_device_arrays(array.shape, sharding, placed)


def write_store(
    folder: str | Path,
    mesh: Mesh,
    make: Callable[[StoreWriter], Any],
    *,
    holds: str,
    about: Mapping[str, Any],
) -> None:
    """Store the tree that `make` gives of the arrays it writes; `folder` is new, or empty."""
    json.dumps(dict(about))  # so that what is not JSON is noticed before the work
    with written_folder(FORMAT, folder) as to:
        to.content |= {"holds": holds, "about": dict(about), "mesh": dict(mesh.shape)}
        to.content["tree"] = to_json(make(StoreWriter(to)))


def is_stored(folder: str | Path) -> bool:
    """Whether there is one."""
    return is_complete(FORMAT, folder)


def open_store(folder: str | Path) -> Store:
    """Open what `write_store` wrote; arrays are checked and read when they are placed."""
    files = open_folder(FORMAT, folder)
    content = files.content
    try:
        tree = from_json(content["tree"])
        return Store(files, content["holds"], content["about"], content["mesh"], tree)
    except (ValueError, KeyError, RecursionError) as error:
        with files.remedied():
            path = files.path / FORMAT.manifest
            raise UserError(f"{path} is not of this gtjax: {error}.") from error


def _sizes(mesh: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())

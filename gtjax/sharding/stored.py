"""Sharded arrays in a folder, so that each host reads the shards of its own devices and no others.

    FOLDER/stored.json          what is stored, for which mesh; the tree, with the shape and type of
                                every array and the hashes of its files
    FOLDER/shard-00003/12.npy   shard 3 of array 12

One process writes, with `StoreWriter` in the place of `place_rows` and `place_parts`: it holds one
shard of one array at a time. Shards are numbered by their place in the array: rows are cut over
all devices, parts along the node axis only, so the devices of a part share a file. The shape of the
mesh has to be the same when they are read; which process has which device may change. A file is
checked against its hash when it is read, and mapped. The folder appears under its name only once
it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from gtjax.graph import UserError
from gtjax.graph.checked_files import (
    is_taken,
    map_array,
    read_manifest,
    save_array,
    write_manifest,
    written_whole,
)
from gtjax.sharding.abstract import abstract_parts, abstract_rows
from gtjax.sharding.attention import BY_PART, BY_ROW
from gtjax.sharding.place import rows_by_number
from gtjax.sharding.tree_json import from_json, to_json
from gtjax.strategies import FEATURE

MANIFEST = "stored.json"
FORMAT = "gtjax stored arrays"
VERSION = 1
SPECS = {"row": BY_ROW, "part": BY_PART}


@dataclass(frozen=True)
class StoredArray:
    """One array of the tree: what it is, and the hashes of its shards in their order."""

    number: int
    by: str  # "row" or "part": along which axes of the mesh it is cut
    shape: tuple[int, ...]
    dtype: str
    hashes: tuple[str, ...] = ()

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
        return mesh.size if self.by == "row" else mesh.size // mesh.shape[FEATURE]


class StoreWriter:
    """Takes the calls of `place_rows` and `place_parts`, and writes what they would place."""

    def __init__(self, folder: Path):
        self._folder, self._written = folder, 0

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

    def _write(
        self,
        mesh: Mesh,
        by: str,
        like: jax.ShapeDtypeStruct,
        shard: Callable[[slice], np.ndarray],
    ) -> StoredArray:
        array = StoredArray(self._written, by, tuple(like.shape), like.dtype.name)
        self._written += 1
        rows, hashes = array.shape[0] // array.shards(mesh), []
        for number in range(array.shards(mesh)):
            path = self._folder / array.file(number)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            values = shard(slice(number * rows, (number + 1) * rows))
            hashes.append(save_array(path, values.astype(like.dtype, copy=False)))
            del values  # before the next is gathered
        return replace(array, hashes=tuple(hashes))


@dataclass(frozen=True)
class Store:
    """Sharded arrays on disk; `place` puts a process's shards on its devices."""

    folder: Path
    holds: str  # what kind of tree it is
    about: dict[str, Any]  # what it was made from, as the writer said
    mesh: dict[str, int]
    tree: Any  # of `StoredArray`

    def place(self, mesh: Mesh) -> Any:
        """The arrays on the devices of a mesh, as `place_rows` and `place_parts` give them."""
        with _made_again(self.folder):
            if dict(mesh.shape) != self.mesh:
                raise UserError(
                    f"{self.folder / MANIFEST} is for a mesh of {_sizes(self.mesh)}; this mesh is "
                    f"{_sizes(dict(mesh.shape))}."
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
                path = self.folder / array.file(shard)
                last, values = shard, map_array(path, array.hashes[shard], shape, dtype)
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
    content = {"format": FORMAT, "version": VERSION, "holds": holds, "about": dict(about)}
    json.dumps(content)  # so that what is not JSON is noticed before the work
    with written_whole(Path(folder)) as temporary:
        if is_taken(Path(folder)):
            raise UserError(f"arrays are stored in a new folder; {folder} is there. Remove it.")
        content |= {"mesh": dict(mesh.shape), "tree": to_json(make(StoreWriter(temporary)))}
        write_manifest(temporary / MANIFEST, content)


def open_store(folder: str | Path) -> Store:
    """Open what `write_store` wrote; arrays are checked and read when they are placed."""
    folder, path = Path(folder), Path(folder, MANIFEST)
    with _made_again(folder):
        content = read_manifest(path, FORMAT, VERSION)
        try:
            tree = from_json(content["tree"])
            return Store(folder, content["holds"], content["about"], content["mesh"], tree)
        except (ValueError, KeyError, RecursionError) as error:
            raise UserError(f"{path} is not of this gtjax: {error}.") from error


@contextmanager
def _made_again(folder: Path) -> Iterator[None]:
    """Say what to do about a folder that cannot be used."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} Remove {folder}: it is made again.") from error


def _sizes(mesh: Mapping[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in mesh.items())

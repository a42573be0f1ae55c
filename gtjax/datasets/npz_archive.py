"""Read single arrays out of an untrusted `.npz`, without pickle and without trusting its numbers.

`np.load` believes an array's header before it has seen the data: a hundred bytes can ask for any
amount of memory. Here a header has to agree with the size of its zip member, and that size has to
be possible for the compressed bytes that are there, before anything is allocated. Only arrays of
plain numbers are read; object arrays, which are pickles, are refused by their header. A key that
is not asked for is never opened, so files with pickled extras (node names) load all the same.
"""

from __future__ import annotations

import math
import re
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from gtjax.core.errors import GraphFormatError
from gtjax.datasets.limits import Limits
from gtjax.datasets.parsing import parsing

_ARCHIVE_RULE = "a readable zip archive of .npy arrays"
_HEADER = re.compile(
    r"\{\s*'descr':\s*'(?P<descr>[^']{1,32})',\s*'fortran_order':\s*(?P<fortran>True|False),"
    r"\s*'shape':\s*\((?P<shape>(?:\d{1,19}L?,\s*)*(?:\d{1,19}L?)?)\),?\s*\}\s*"
)
_NUMBER = re.compile(r"[<>|=]?(?:\?|b1|[iu][1248]|f[248])")
_MAX_HEADER_BYTES = 16_384
_MAX_DIMENSIONS = 8
_MAX_DEFLATE_RATIO = 1_100  # deflate itself cannot exceed 1032
_CHUNK_BYTES = 1 << 24


class NpzArchive:
    """The arrays of one `.npz`, read on demand. A context manager."""

    def __init__(self, path: Path, limits: Limits):
        self._limits = limits
        self._file_bytes = path.stat().st_size
        with parsing("archive", _ARCHIVE_RULE):
            self._zip = zipfile.ZipFile(path)
        try:
            self._members = self._checked_members()
        except GraphFormatError:
            self._zip.close()
            raise

    def __enter__(self) -> NpzArchive:
        return self

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def array(self, key: str, *, ndim: tuple[int, ...], kinds: str) -> np.ndarray:
        """The array at `key`; `kinds` are the numpy type kinds allowed (`"iu"`: integers)."""
        if key not in self._members:
            present = ", ".join(sorted(self._members)) or "no array"
            raise GraphFormatError(key, "this key is required", present)
        with parsing(key, "a readable .npy array"), self._zip.open(self._members[key]) as stream:
            array = self._read(key, stream)
        _check_kind(key, array.shape, array.dtype, ndim, kinds)
        return array

    def stream(self, key: str, *, ndim: tuple[int, ...], kinds: str) -> ArrayStream:
        """The array at `key`, to be read bit by bit; close it."""
        if key not in self._members:
            present = ", ".join(sorted(self._members)) or "no array"
            raise GraphFormatError(key, "this key is required", present)
        with parsing(key, "a readable .npy array"):
            stream = self._zip.open(self._members[key])
            dtype, shape, fortran_order = self._checked_header(key, stream)
        _check_kind(key, shape, dtype, ndim, kinds)
        return ArrayStream(key, stream, dtype, shape, fortran_order)

    def scalar(self, key: str, *, kinds: str) -> int:
        """The single integer or boolean at `key`."""
        array = self.array(key, ndim=(0, 1), kinds=kinds)
        if array.size != 1:
            raise GraphFormatError(key, "a single value", f"shape {list(array.shape)}")
        return int(array.reshape(()))

    def _checked_members(self) -> dict[str, zipfile.ZipInfo]:
        members: dict[str, zipfile.ZipInfo] = {}
        infos = self._zip.infolist()
        if len(infos) > self._limits.max_members:
            rule = f"at most {self._limits.max_members} arrays"
            raise GraphFormatError("archive", rule, len(infos))
        for info in infos:
            key = info.filename.removesuffix(".npy")
            if key in members:
                raise GraphFormatError("archive", "each array is stored once", f"{key} twice")
            members[key] = info
        return members

    def _read(self, key: str, stream: IO[bytes]) -> np.ndarray:
        dtype, shape, fortran_order = self._checked_header(key, stream)
        num_bytes = math.prod(shape) * dtype.itemsize
        self._limits.check_bytes(key, num_bytes)
        buffer = np.empty(num_bytes, np.uint8)
        _fill(key, buffer, stream)
        if dtype.kind == "b" and buffer.size and buffer.max() > 1:
            raise GraphFormatError(key, "booleans are stored as 0 or 1", int(buffer.max()))
        array = buffer.view(dtype).reshape(shape, order="F" if fortran_order else "C")
        return array.astype(dtype.newbyteorder("="), copy=False)

    def _checked_header(
        self, key: str, stream: IO[bytes]
    ) -> tuple[np.dtype, tuple[int, ...], bool]:
        """Type, shape and order, which agree with the size of the member."""
        info = self._members[key]
        possible = info.compress_size
        if info.compress_type == zipfile.ZIP_DEFLATED:
            possible *= _MAX_DEFLATE_RATIO
        elif info.compress_type != zipfile.ZIP_STORED:
            raise GraphFormatError(key, "stored or deflated", f"zip method {info.compress_type}")
        if info.compress_size > self._file_bytes or info.file_size > possible:
            rule = f"a declared size that {info.compress_size} stored bytes can hold"
            raise GraphFormatError(key, rule, f"{info.file_size} bytes")
        dtype, shape, fortran_order, header_bytes = _read_header(key, stream)
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes != info.file_size - header_bytes:
            rule = f"shape and type agree with {info.file_size - header_bytes} bytes of data"
            raise GraphFormatError(key, rule, f"{dtype} {list(shape)}")
        return dtype, shape, fortran_order


class ArrayStream:
    """An array of an archive, read in the order in which it is stored."""

    def __init__(
        self, key: str, stream: IO[bytes], dtype: np.dtype, shape: tuple[int, ...], fortran: bool
    ):
        self._key, self._stream, self.dtype = key, stream, dtype
        self.shape, self.fortran = shape, fortran

    def skip(self, count: int) -> ArrayStream:
        """Leave out so many values."""
        with parsing(self._key, "a readable .npy array"):
            left = count * self.dtype.itemsize
            while left and (data := self._stream.read(min(_CHUNK_BYTES, left))):
                left -= len(data)
        return self

    def take(self, count: int) -> np.ndarray:
        """The next values."""
        buffer = np.empty(count * self.dtype.itemsize, np.uint8)
        with parsing(self._key, "a readable .npy array"):
            _fill(self._key, buffer, self._stream)
        if self.dtype.kind == "b" and buffer.size and buffer.max() > 1:
            raise GraphFormatError(self._key, "booleans are stored as 0 or 1", int(buffer.max()))
        return buffer.view(self.dtype).astype(self.dtype.newbyteorder("="), copy=False)

    def close(self) -> None:
        """Free it."""
        self._stream.close()


def _check_kind(
    key: str, shape: tuple[int, ...], dtype: np.dtype, ndim: tuple[int, ...], kinds: str
) -> None:
    if len(shape) not in ndim:
        rule = f"an array of {' or '.join(map(str, ndim))} dimensions"
        raise GraphFormatError(key, rule, f"shape {list(shape)}")
    if dtype.kind not in kinds:
        names = {"b": "booleans", "i": "integers", "u": "integers", "f": "real numbers"}
        rule = "values are " + " or ".join(dict.fromkeys(names[kind] for kind in kinds))
        raise GraphFormatError(key, rule, dtype)


def member_names(path: Path) -> frozenset[str]:
    """The keys of an archive without reading any; empty if it is not a readable archive."""
    try:
        with parsing("archive", _ARCHIVE_RULE), zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except GraphFormatError:
        return frozenset()


def _read_header(key: str, stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """Type, shape, order and the number of bytes read."""
    magic = _take(key, stream, 8)
    if magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise GraphFormatError(key, "an .npy array of format 1, 2 or 3", magic)
    length_bytes = 2 if magic[6] == 1 else 4
    length = int.from_bytes(_take(key, stream, length_bytes), "little")
    if length > _MAX_HEADER_BYTES:
        raise GraphFormatError(key, f"a header of at most {_MAX_HEADER_BYTES} bytes", length)
    text = _take(key, stream, length).decode("latin1")
    header = _HEADER.fullmatch(text)
    if header is None:
        raise GraphFormatError(key, "an .npy header of one plain type and a shape", text)
    descr = header["descr"]
    if "O" in descr:
        rule = "plain numbers; object arrays are pickles, which are never loaded"
        raise GraphFormatError(key, rule, f"type {descr}")
    if not _NUMBER.fullmatch(descr):
        raise GraphFormatError(key, "an array of numbers or booleans", f"type {descr}")
    shape = tuple(int(n.rstrip("L")) for n in header["shape"].replace(" ", "").split(",") if n)
    if len(shape) > _MAX_DIMENSIONS:
        raise GraphFormatError(key, f"at most {_MAX_DIMENSIONS} dimensions", len(shape))
    return np.dtype(descr), shape, header["fortran"] == "True", 8 + length_bytes + length


def _take(key: str, stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise GraphFormatError(key, "a complete .npy header", f"{len(data)} of {count} bytes")
    return data


def _fill(key: str, buffer: np.ndarray, stream: IO[bytes]) -> None:
    """Read exactly the buffer; in chunks, since zipfile makes a copy of what it returns."""
    filled = 0
    while filled < len(buffer):
        data = stream.read(min(_CHUNK_BYTES, len(buffer) - filled))
        if not data:
            raise GraphFormatError(key, f"{len(buffer)} bytes of data", filled)
        buffer[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
        filled += len(data)

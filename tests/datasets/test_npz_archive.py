"""Untrusted .npz archives: sizes are checked before memory is taken, and pickles stay closed."""

from __future__ import annotations

import io
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sample_files import npz_arrays

from gtjax.core.errors import GraphFormatError
from gtjax.datasets import Limits, load


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def npy_claiming(descr: str, shape: str, data: bytes = b"") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def write(folder: Path, method: int = zipfile.ZIP_DEFLATED, **changed: bytes) -> Path:
    """A valid archive but for the raw members in `changed`."""
    path = folder / "toy.npz"
    members = {key: npy(np.asarray(value)) for key, value in npz_arrays().items()} | changed
    with zipfile.ZipFile(path, "w", method) as archive:
        for key, data in members.items():
            archive.writestr(f"{key}.npy", data)
    return path


def refused(path: Path, **options) -> GraphFormatError:
    with pytest.raises(GraphFormatError) as caught:
        load(path, **options)
    assert caught.value.file == str(path)
    return caught.value


@pytest.mark.parametrize(
    "claim",
    ["(1099511627776, 6)", "(13, 7)", "(9223372036854775807, 9223372036854775807)", "(0,)"],
)
def test_a_shape_has_to_agree_with_the_bytes_that_are_there(tmp_path, claim):
    tracemalloc.start()
    error = refused(write(tmp_path, features=npy_claiming("<f4", claim, b"\0" * 312)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.field == "features"
    assert "agree with 312 bytes" in error.rule
    assert peak < 10_000_000


def test_a_small_archive_cannot_inflate_past_the_cap(tmp_path):
    bomb = npy_claiming("<f4", "(13, 1000000)", b"\0" * 52_000_000)
    path = write(tmp_path, features=bomb)
    assert path.stat().st_size < 100_000
    assert "at most 1000000 bytes" in refused(path, limits=Limits(max_bytes=1_000_000)).rule


def test_a_declared_size_that_deflate_cannot_reach_is_refused(tmp_path):
    path = write(tmp_path)
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"features.npy") - 46  # the entry of the central directory
    assert data[entry : entry + 4] == b"PK\x01\x02"
    data[entry + 24 : entry + 28] = struct.pack("<I", 2**31)
    path.write_bytes(data)
    assert "stored bytes can hold" in refused(path).rule


def test_object_arrays_are_refused_without_being_loaded(tmp_path, monkeypatch):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    trapped = npy(np.array([Trap()], dtype=object))
    error = refused(write(tmp_path, labels=trapped))
    assert error.field == "labels"
    assert "never loaded" in error.rule
    # A pickle under a key that nobody needs is never opened.
    assert load(write(tmp_path, node_names=trapped)).num_nodes == 13
    # The member may also be a bare pickle without any header.
    assert refused(write(tmp_path, labels=pickle.dumps([1]))).field == "labels"


@pytest.mark.parametrize(
    "header",
    [
        b"\x93NUMPY\x01\x00\xff\xff",
        b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        npy_claiming("<f4", "__import__('os')"),
        npy_claiming("<f4", "(-1,)"),
        npy_claiming("<f4", "(" + "1," * 40 + ")", b"\0" * 4),
        npy_claiming("<f16", "(1,)", b"\0" * 16),
        npy_claiming("V8", "(1,)", b"\0" * 8),
        b"\x93NUMPY\x01\x00\x20\x00[('a', '<f4')]" + b" " * 18,
        b"",
    ],
)
def test_headers_that_are_not_plain_are_refused(tmp_path, header):
    assert refused(write(tmp_path, features=header)).field == "features"


def test_booleans_are_zero_or_one(tmp_path):
    error = refused(write(tmp_path, train_mask=npy_claiming("|b1", "(13,)", b"\x02" * 13)))
    assert "0 or 1" in error.rule


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_stored_twice_is_ambiguous(tmp_path):
    path = write(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.npy", npy(np.zeros(13, int)))
    assert "stored once" in refused(path).rule


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_the_compression_that_numpy_writes_is_read(tmp_path, method):
    assert "stored or deflated" in refused(write(tmp_path, method)).rule


def test_encrypted_members_are_refused(tmp_path):
    path = write(tmp_path)
    data = bytearray(path.read_bytes())
    for marker, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = data.find(marker)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(marker, at + 4)
    path.write_bytes(data)
    assert "RuntimeError" in refused(path).value


def test_flipped_data_fails_its_checksum(tmp_path):
    path = write(tmp_path, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.index(b"features.npy") + 160] ^= 0xFF
    path.write_bytes(data)
    assert "CRC" in refused(path).value


def test_too_many_members_are_refused(tmp_path):
    assert refused(write(tmp_path), limits=Limits(max_members=3)).field == "archive"


def test_something_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "toy.npz"
    for content in (b"", b"not a zip", b"PK\x05\x06" + b"\0" * 18):
        path.write_bytes(content)
        refused(path)

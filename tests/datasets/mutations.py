"""Ways to break a file: raw bytes, text inside gzip, and arrays inside an .npz archive."""

from __future__ import annotations

import gzip
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

Rng = np.random.Generator

_TOKENS = ["", "nan", "inf", "-1", "0.5", "1e400", "99999999999999999999", "x", '"', "\0", "\x80"]
_TOKENS += ["true", "\t", ",", "\n", "#", "2147483648", "4294967296", "-9223372036854775809", "é"]
_TYPES = [
    "f2",
    "f4",
    "f8",
    "i1",
    "u1",
    "i8",
    "u8",
    ">i4",
    ">f8",
    "?",
    "c8",
    "U3",
    "S3",
    "O",
    "M8[s]",
]
_VALUES = [0, 1, -1, 2, 127, 255, 2**31 - 1, 2**31, 2**40, 2**62, -(2**31), -(2**63)]


def mutate(path: Path, rng: Rng) -> str:
    """Break the file at `path` in one to three ways; returns what was done, for the report."""
    kinds: list[Callable[[bytes, Rng], bytes]] = [bytes_mutation]
    if path.name.endswith(".npz"):
        kinds += [array_mutation, array_mutation, header_mutation, member_mutation]
    elif path.name.endswith(".gz"):
        kinds += [inside_gzip, inside_gzip]
    elif path.name.endswith(".parquet"):
        kinds += [parquet_mutation, parquet_mutation, parquet_mutation]
    else:
        kinds += [text_mutation, text_mutation]
    done = []
    for _ in range(rng.integers(1, 4)):
        kind = kinds[rng.integers(len(kinds))]
        path.write_bytes(kind(path.read_bytes(), rng))
        done.append(kind.__name__)
    return " then ".join(done)


def bytes_mutation(data: bytes, rng: Rng) -> bytes:
    """Flip, overwrite, cut, insert, delete or repeat bytes, near the ends as often as anywhere."""
    if not data:
        return rng.bytes(rng.integers(1, 50))
    raw = bytearray(data)
    at = int(rng.integers(len(raw)))
    if rng.random() < 0.4:  # headers and directories stand at the ends
        at = min(at, len(raw) - 1, int(rng.integers(1, 120)))
        at = at if rng.random() < 0.5 else len(raw) - 1 - at
    length = int(rng.integers(1, 20))
    match rng.integers(6):
        case 0:
            for offset in rng.integers(0, 64, rng.integers(1, 8)):
                raw[(at + offset) % len(raw)] ^= 1 << int(rng.integers(8))
        case 1:
            fill = [b"\x00", b"\xff", b"\x80", rng.bytes(1)][rng.integers(4)]
            raw[at : at + length] = fill * min(length, len(raw) - at)
        case 2:
            del raw[at:]
        case 3:
            raw[at:at] = rng.bytes(length)
        case 4:
            del raw[at : at + length]
        case _:
            raw[at:at] = raw[at : at + 5 * length]
    return bytes(raw)


def text_mutation(data: bytes, rng: Rng) -> bytes:
    """Change one field, or drop, repeat or swap lines."""
    lines = data.split(b"\n")
    at = int(rng.integers(len(lines)))
    separator = b"\t" if b"\t" in data else b","
    match rng.integers(6):
        case 0:
            lines[at] = b""
        case 1:
            lines[at:at] = [lines[at]] * int(rng.integers(1, 4))
        case 2:
            lines = lines[at:]
        case 3:
            fields = lines[at].split(separator)
            del fields[rng.integers(len(fields))]
            lines[at] = separator.join(fields)
        case _:
            for _ in range(rng.integers(1, 4)):
                at = int(rng.integers(len(lines)))
                fields = lines[at].split(separator)
                token = _TOKENS[rng.integers(len(_TOKENS))]
                encoding = "latin1" if token == "\x80" else "utf8"
                fields[rng.integers(len(fields))] = token.encode(encoding)
                lines[at] = separator.join(fields)
    return b"\n".join(lines)


def inside_gzip(data: bytes, rng: Rng) -> bytes:
    """Break the text and compress it again, so that the checksum is right."""
    try:
        text = gzip.decompress(data)
    except (OSError, EOFError, ValueError, gzip.zlib.error):
        return data[::-1]
    change = text_mutation if rng.random() < 0.8 else bytes_mutation
    return gzip.compress(change(text, rng), mtime=0)


def array_mutation(data: bytes, rng: Rng) -> bytes:
    """Change type, shape or values of one array, or rename or remove it."""
    members = _members(data)
    key = _choose(members, rng)
    if key is None:
        return data
    match rng.integers(8):
        case 0:
            del members[key]
        case 1:
            members[f"{key[:-4]}_{rng.integers(3)}.npy"] = members.pop(key)
        case 2:
            other = _choose(members, rng)
            members[key] = members[other]
        case _:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    array = np.load(io.BytesIO(members[key]), allow_pickle=False)
                    members[key] = _npy(_changed(array, rng))
            except Exception:  # an earlier mutation broke it, or this one does not apply
                return data
    return _zipped(members, rng)


def header_mutation(data: bytes, rng: Rng) -> bytes:
    """Break the bytes of one array's header, or let it claim another shape."""
    members = _members(data)
    key = _choose(members, rng)
    if key is None:
        return data
    header, body = members[key][:128], members[key][128:]
    if rng.random() < 0.5:
        header = bytes_mutation(header, rng)
    else:
        shapes = [
            "(99999999999,)",
            "(0,)",
            "()",
            "(1, 1)",
            "(-1,)",
            "(13, 13)",
            "(1" + ", 1" * 40 + ")",
        ]
        shape = shapes[rng.integers(len(shapes))]
        descr = ["<f4", "<i8", "|O", "|b1", "<U9", "<f16"][rng.integers(6)]
        text = f"{{'descr': '{descr}', 'fortran_order': True, 'shape': {shape}, }}"
        header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(118).encode()[:118]
    members[key] = header + body
    return _zipped(members, rng)


def member_mutation(data: bytes, rng: Rng) -> bytes:
    """Store a member twice, compress it oddly, or put a pickle in its place."""
    members = _members(data)
    key = _choose(members, rng)
    if key is None:
        return data
    match rng.integers(3):
        case 0:
            return _zipped(members, rng, twice=key)
        case 1:
            return _zipped(
                members, rng, method=[zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA][rng.integers(2)]
            )
        case _:
            members[key] = b"\x80\x04\x95" + members[key]
            return _zipped(members, rng)


def parquet_mutation(data: bytes, rng: Rng) -> bytes:
    """Change name, type or values of a column, or the rows and the way they are stored."""
    try:
        table = parquet.read_table(io.BytesIO(data))
    except Exception:  # an earlier mutation broke it in any way whatever
        return data
    names = list(table.column_names)
    at = int(rng.integers(len(names))) if names else 0
    match rng.integers(5) if names else 4:
        case 0:
            table = table.remove_column(at)
        case 1:
            choices = ["src", "dst", "id", "label", "split", "train", "", names[0]]
            names[at] = choices[rng.integers(len(choices))]
            table = table.rename_columns(names)
        case 2:
            column = _changed_column(table.column(at).to_pylist(), rng)
            if column is not None:
                table = table.set_column(at, names[at], column)
        case 3:
            rows = rng.integers(0, table.num_rows, rng.integers(0, 40)) if table.num_rows else []
            table = table.take(pa.array(rows, pa.int64()))
        case _:
            pass
    stream = io.BytesIO()
    compression = ["none", "snappy", "gzip", "zstd"][rng.integers(4)]
    try:
        parquet.write_table(
            table,
            stream,
            compression=compression,
            use_dictionary=bool(rng.integers(2)),
            store_schema=bool(rng.integers(2)),
            row_group_size=int(rng.integers(1, 20)),
        )
    except pa.ArrowException:  # not every type can be written
        return data
    return stream.getvalue()


def _changed_column(values: list, rng: Rng) -> pa.Array | None:
    """Another type, or another value in one place; None if it does not apply."""
    arrow_types = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string()]
    arrow_types += [pa.large_string(), pa.binary(), pa.date32(), pa.decimal128(20, 2), pa.null()]
    arrow_types += [pa.list_(pa.int64()), pa.dictionary(pa.int8(), pa.string()), pa.timestamp("s")]
    values = list(values)
    if values and rng.random() < 0.6:
        others = [None, "", "x", -1, 2**62, 0.5, float("nan"), float("inf"), 1e300, True, b"\x80"]
        kind = type(values[0])
        new = others[rng.integers(len(others))]
        if rng.random() < 0.5:
            values = [new] * len(values)
        elif new is None or isinstance(new, kind):
            values[rng.integers(len(values))] = new
    try:
        array = pa.array(values)
        if rng.random() < 0.5:
            array = array.cast(arrow_types[rng.integers(len(arrow_types))], safe=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return array


def _changed(array: np.ndarray, rng: Rng) -> np.ndarray:
    match rng.integers(8):
        case 0:
            return array.astype(_TYPES[rng.integers(len(_TYPES))])
        case 1:
            return array.reshape(-1)
        case 2:
            return array.T
        case 3:
            return array[None] if rng.random() < 0.5 else array[..., None]
        case 4:
            return np.atleast_1d(array)[: rng.integers(0, 1 + len(np.atleast_1d(array)))]
        case 5:
            return np.concatenate([np.atleast_1d(array)] * 2)
        case 6:
            wide = array.astype("f8" if array.dtype.kind == "f" else "i8")
            if wide.size:
                value = [np.nan, np.inf, -np.inf, 1e300, -1][rng.integers(5)]
                if wide.dtype.kind == "i":
                    value = _VALUES[rng.integers(len(_VALUES))]
                wide.reshape(-1)[rng.integers(wide.size)] = value
            return wide if rng.random() < 0.5 else wide.astype(array.dtype)
        case _:
            flat = array.reshape(-1).copy()
            rng.shuffle(flat)
            return flat.reshape(array.shape)


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def _choose(members: dict[str, bytes], rng: Rng) -> str | None:
    return list(members)[rng.integers(len(members))] if members else None


def _members(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # an earlier mutation broke it in any way whatever
        return {}


def _zipped(
    members: dict[str, bytes], rng: Rng, *, method: int | None = None, twice: str | None = None
) -> bytes:
    if method is None:
        method = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED][rng.integers(2)]
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of duplicates
        for name, data in members.items():
            archive.writestr(name, data)
        if twice is not None:
            archive.writestr(twice, members[twice])
    return stream.getvalue()

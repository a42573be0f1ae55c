"""`ObjectStore`: objects of any fsspec address, each call tried again where that may help.

What is written is checked: against the checksum that the store computed of what it received
(S3's ETag, the MD5 of GCS), and where there is none that fits, by reading it back. What is read is
checked by whoever knows its hash (`read_checked`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
from dataclasses import dataclass
from typing import Any

from gtjax.core.hashed_files import new_digest
from gtjax.remote.address import address_of
from gtjax.remote.problems import (
    DamagedError,
    MissingError,
    Patience,
    StoreError,
    WrongBytesError,
    missing_package,
)

RANGE_BYTES = 8 << 20  # of one request, so that little is lost when one fails
# Where writing to a name that is there can be seen half done, and renaming cannot.
_RENAMES = {"file", "local", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs"}
# Tries are ours: those of a client would multiply with them, and say nothing.
_S3_OPTIONS = {
    "retries": {"total_max_attempts": 1, "mode": "standard"},
    "connect_timeout": 10,
    "read_timeout": 30,
}


@dataclass(frozen=True)
class ObjectStore:
    """A folder of objects, and the client that reaches it; names are relative to it."""

    address: str
    patience: Patience
    _client: Any
    _root: str

    @staticmethod
    def open(address: str, patience: Patience | None = None) -> ObjectStore:
        """The store of an address; nothing is asked of it yet."""
        found = address_of(address)
        if found is None:
            raise StoreError(f"a store has an address such as s3://bucket/run; found {address}.")
        kind = found.partition("://")[0]
        try:
            core = importlib.import_module("fsspec.core")
            client, root = core.url_to_fs(found, **_options(kind))
        except (ImportError, ValueError) as error:
            raise missing_package(found, error) from error
        if kind in ("s3", "s3a"):
            client.retries = 1
        return ObjectStore(found, patience or Patience(), client, root.rstrip("/"))

    def within(self, name: str) -> ObjectStore:
        """The store of a folder in this one."""
        return ObjectStore(
            f"{self.address}/{name}", self.patience, self._client, f"{self._root}/{name}"
        )

    def read(self, name: str) -> bytes:
        """All of a small object."""
        return self.patience.tried(self._shown(name), lambda: self._client.cat_file(self._at(name)))

    def read_checked(self, name: str, size: int, digest: str) -> bytes:
        """An object that has this size and hash; by ranges, of which one that fails is repeated.

        Raises DamagedError if it has another, however often it is read.
        """

        def read_range(start: int) -> bytes:
            end = min(size, start + RANGE_BYTES)

            def ask() -> bytes:
                found = self._client.cat_file(self._at(name), start=start, end=end)
                if len(found) != end - start:
                    raise WrongBytesError(f"{len(found)} of {end - start} bytes arrived")
                return found

            return self.patience.tried(self._shown(name), ask)

        def ask_all() -> bytes:
            data = b"".join(read_range(start) for start in range(0, size, RANGE_BYTES))
            if hash_of(data) != digest:
                raise WrongBytesError("its hash is not that of what was written")
            return data

        return self.patience.tried(self._shown(name), ask_all)

    def write(self, name: str, data: bytes) -> None:
        """Write an object, whole or not at all, and see to it that the store has these bytes."""

        def put() -> None:
            path = self._at(name)
            if _kind(self._client) in _RENAMES:
                self._client.pipe_file(f"{path}.part", data)
                self._client.mv(f"{path}.part", path)
            else:
                self._client.pipe_file(path, data)
            if not self._has(name, data):
                raise WrongBytesError("the store has other bytes than those sent")

        try:
            self.patience.tried(self._shown(name), put)
        except DamagedError as error:
            raise StoreError(
                f"{self._shown(name)} could not be written: the store has other bytes than those "
                f"sent, {self.patience.attempts} times. Check what stands between, such as a proxy."
            ) from error

    def has(self, name: str, data: bytes) -> bool:
        """Whether an object is there and holds these bytes."""
        try:
            return self.patience.tried(self._shown(name), lambda: self._has(name, data))
        except MissingError:
            return False

    def sizes(self) -> dict[str, int]:
        """Size of every object in the folder and in those below, by name."""

        def ask() -> dict[str, Any]:
            try:
                return self._client.find(self._root, detail=True, refresh=True)
            except TypeError:  # not every client has something to refresh
                return self._client.find(self._root, detail=True)

        try:
            found = self.patience.tried(self.address, ask)
        except MissingError:
            return {}
        prefix = f"{self._root}/"
        return {
            path.removeprefix(prefix): known["size"] or 0
            for path, known in found.items()
            if path.startswith(prefix) and not path.endswith("/")
        }

    def remove(self, *names: str) -> None:
        """Remove objects, if they are there; many at once, where the store can."""
        paths = [self._at(name) for name in names]
        if paths:
            with contextlib.suppress(MissingError):
                self.patience.tried(self._shown(names[0]), lambda: self._client.rm(paths))

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        try:
            self.patience.tried(self._shown(name), lambda: self._info(name))
        except MissingError:
            return False
        return True

    def _has(self, name: str, data: bytes) -> bool:
        known = self._info(name)
        if known["size"] != len(data):
            return False
        if _checksum(known) == hashlib.md5(data, usedforsecurity=False).hexdigest():
            return True
        return self._client.cat_file(self._at(name)) == data

    def _info(self, name: str) -> dict[str, Any]:
        with contextlib.suppress(AttributeError):
            self._client.invalidate_cache(self._at(name))
        return self._client.info(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _shown(self, name: str) -> str:
        return f"{self.address}/{name}"


def hash_of(data: bytes) -> str:
    """The hash that objects are checked by."""
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()


def _kind(client: Any) -> str:
    return client.protocol if isinstance(client.protocol, str) else client.protocol[0]


def _options(kind: str) -> dict[str, Any]:
    """Of the client; what is set in fsspec's own configuration wins."""
    options: dict[str, Any] = {"use_listings_cache": False}
    if kind in ("file", "local"):
        options["auto_mkdir"] = True
    if kind in ("s3", "s3a"):
        own = importlib.import_module("fsspec.config").conf.get("s3", {})
        options["config_kwargs"] = _S3_OPTIONS | own.get("config_kwargs", {})
    return options


def _checksum(known: dict[str, Any]) -> str | None:
    """The MD5 that a store says it has of an object."""
    if isinstance(etag := known.get("ETag"), str):  # of several parts or encrypted: no MD5
        return etag.strip('"')
    if isinstance(md5 := known.get("md5Hash"), str):
        return base64.b64decode(md5).hex()
    return None

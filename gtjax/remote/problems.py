"""What goes wrong with an object store: what is worth another try, and what to tell the user."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gtjax.core.errors import UserError

T = TypeVar("T")

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_CREDENTIALS = {
    "s3": "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run `aws configure`",
    "gcs": "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
}
_BUSY = ("slowdown", "slow down", "reduce your request rate", "throttl", "too many requests")


class StoreError(UserError):
    """A store could not be used; what was reported as stored is as it was."""


class MissingError(StoreError):
    """There is no such object, or no such bucket."""


class DamagedError(StoreError):
    """What is stored is not what was written."""


class WrongBytesError(Exception):
    """Bytes that arrived are not those that were sent; worth another try."""


@dataclass(frozen=True)
class Patience:
    """How often to try, and how long to wait in between."""

    attempts: int = 8
    first: float = 0.25  # seconds before the second try; each time twice as long, and
    longest: float = 20.0  # no longer than this: in all about 50 s

    def seconds(self, failures: int) -> float:
        """What to wait after so many failures; drawn, so that many hosts do not come back at once.

        Not by jax or a seed: nothing that is computed depends on it.
        """
        return min(self.longest, self.first * 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)

    def tried(self, address: str, call: Callable[[], T]) -> T:
        """What `call` gives, after some tries if it has to be; else a StoreError that tells why."""
        for attempt in range(1, self.attempts + 1):
            try:
                return call()
            except StoreError:
                raise
            except Exception as error:  # clients raise all kinds
                if (told := _final(address, error)) is not None:
                    raise told from error
                if attempt == self.attempts:
                    raise self._given_up(address, error) from error
            time.sleep(self.seconds(attempt))
        raise AssertionError("there is at least one try")

    def _given_up(self, address: str, error: Exception) -> StoreError:
        said = reason(error)
        if isinstance(error, WrongBytesError):
            return DamagedError(f"{address} is damaged: {said}, {self.attempts} times.")
        if any(word in said.lower() for word in _BUSY) or _errno(error) == errno.EBUSY:
            return StoreError(
                f"{address}: the store asks for fewer requests, and still did at the "
                f"{self.attempts}. try ({said}). Run fewer processes against it or wait, then give "
                "the same command again: it goes on with what is missing."
            )
        return StoreError(
            f"{address} did not work {self.attempts} times, last: {said}. Check the network and "
            "the address, then give the same command again: it goes on with what is missing."
        )


def missing_package(address: str, error: Exception) -> StoreError:
    """An address whose client is not installed, or that nobody knows."""
    kind = address.partition("://")[0]
    if kind in EXTRAS or (isinstance(error, ModuleNotFoundError) and error.name == "fsspec"):
        extra = EXTRAS.get(kind, "s3")
        return StoreError(f'{kind}:// needs a package: pip install "gtjax[{extra}]"')
    if isinstance(error, ImportError):
        return StoreError(f"{kind}:// needs a package: {error}")
    return StoreError(
        f"addresses are s3://, gs:// or another that fsspec knows; found {address}. Write ./ "
        "before a local path that looks like one."
    )


def reason(error: BaseException) -> str:
    """What a client said, in a line."""
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(".") if lines else type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def _final(address: str, error: Exception) -> StoreError | None:
    """What no other try would change."""
    kind, _, rest = address.partition("://")
    if isinstance(error, FileNotFoundError):
        bucket = rest.partition("/")[0]
        if "bucket does not exist" in str(error).lower():
            return MissingError(
                f"{kind}://{bucket} does not exist, and {address} is to be in it. Create it, or "
                "correct the address."
            )
        return MissingError(f"{address} is not there.")
    name, code = type(error).__name__, getattr(error, "code", None)
    credentials = _CREDENTIALS.get(EXTRAS.get(kind, ""), "Give the store's client credentials")
    if "Credentials" in name or "TokenError" in name or "RefreshError" in name:
        return StoreError(f"{address} needs credentials: {reason(error)}. {credentials}.")
    if isinstance(error, PermissionError) or code in (401, 403):
        return StoreError(
            f"{address} may not be used with these credentials: {reason(error)}. {credentials}, of "
            "an account that may read, write, list and delete there."
        )
    if isinstance(error, NotImplementedError | TypeError | AttributeError):
        return StoreError(f"{address}: this kind of store cannot do that: {reason(error)}.")
    return None


def _errno(error: Exception) -> int | None:
    return error.errno if isinstance(error, OSError) else None

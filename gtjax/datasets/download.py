"""Download one file over http or https: resumed, retried, capped, checked, complete or absent.

A file is fetched as `<name>.part` and renamed when it is whole. An interrupted download goes on
where it stopped if the server still has the same file (its ETag or date), else it starts again.

Checking: against `sha256` if one is given. Else the digest of the first download is written to
`<name>.sha256` and later downloads and uses have to match it ("trust on first use"). That notices
a file that changes or rots; it cannot vouch for the first download.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gtjax.core.errors import UserError
from gtjax.datasets.download_progress import progress
from gtjax.datasets.limits import Limits

ATTEMPTS = 5
_TIMEOUT_SECONDS = 30
_CHUNK_BYTES = 1 << 18
_RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
_log = logging.getLogger("gtjax")


class _TryAgainError(Exception):
    """Something that may go away by itself."""


def download(
    url: str,
    path: Path,
    limits: Limits,
    *,
    sha256: str | None = None,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Fetch `url` as the file `path`, or raise a `UserError` that says what to do instead."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"downloads use http or https: {url} does not.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    by_hand = f"Check the network and retry, or download {url} by hand and place it at {path}."
    for attempt in range(1, attempts + 1):
        try:
            _fetch(url, part, limits)
            break
        except urllib.error.HTTPError as error:
            problem = f"{error.code} {error.reason}"
            error.close()
            if error.code not in _RETRIED_STATUS:
                raise UserError(f"{url} cannot be had: {problem}. {by_hand}") from error
        except (
            _TryAgainError,
            urllib.error.URLError,
            http.client.HTTPException,
            TimeoutError,
            ConnectionError,
        ) as error:
            problem = str(error) or type(error).__name__
        if attempt == attempts:
            raise UserError(f"{url} failed {attempts} times, last: {problem}. {by_hand}")
        _log.warning("%s: %s; trying again (%d of %d)", url, problem, attempt + 1, attempts)
        sleep(min(30.0, 2.0 ** (attempt - 1)))
    try:
        _check_digest(part, _recorded(path, sha256), url)
    except UserError:
        part.unlink()
        _state_file(part).unlink(missing_ok=True)
        raise
    part.replace(path)
    _state_file(part).unlink(missing_ok=True)


def verify(path: Path, sha256: str | None = None) -> None:
    """Check a file that is already here against the given digest or the recorded one."""
    _check_digest(path, _recorded(path, sha256), str(path))


class _Recorded:
    """The digest a file has to have, if any, and where to write the first one seen."""

    def __init__(self, sha256: str | None, sidecar: Path):
        self.sidecar = sidecar
        self.is_given = sha256 is not None
        self.sha256 = sha256
        if sha256 is None and sidecar.exists():
            self.sha256 = sidecar.read_text(errors="replace").split(" ")[0].strip()


def _recorded(path: Path, sha256: str | None) -> _Recorded:
    return _Recorded(sha256, path.with_name(path.name + ".sha256"))


def _check_digest(file: Path, recorded: _Recorded, origin: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if recorded.sha256 is None:
        name = recorded.sidecar.name.removesuffix(".sha256")
        recorded.sidecar.write_text(f"{found}  {name}\n")
        _log.info("%s: no checksum is known; recorded %s for next time", name, found)
    elif found != recorded.sha256.lower():
        advice = "Delete the file to download it again."
        if not recorded.is_given:
            advice += f" If the new content is what you want, delete {recorded.sidecar} too."
        raise UserError(f"{origin} has sha256 {found} and should have {recorded.sha256}. {advice}")


def _fetch(url: str, part: Path, limits: Limits) -> None:
    """One attempt, which goes on from what earlier ones left."""
    state = _read_state(part, url)
    start = part.stat().st_size if state and part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "gtjax"})
    if start and state:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", state)
    try:
        response = _opener().open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        error.close()
        part.unlink()  # the file on the server is shorter than what we have
        raise _TryAgainError("the file has changed; starting again") from error
    with response:
        resumed = response.status == 206 and _range_start(response) == start
        if response.status == 206 and not resumed:
            part.unlink(missing_ok=True)
            raise _TryAgainError("the server sent another part of the file than asked")
        start = start if resumed else 0
        total = _total(response, start)
        if total is not None:
            _check_size(url, total, limits)
        if not resumed:
            _write_state(part, url, response)
        received = start
        with (
            part.open("ab" if resumed else "wb") as file,
            progress(part.stem, total, start) as show,
        ):
            while data := response.read(_CHUNK_BYTES):
                received += len(data)
                _check_size(url, received, limits, part)
                file.write(data)
                show(len(data))
    if total is not None and received != total:
        raise _TryAgainError(f"{received} of {total} bytes arrived")


def _check_size(url: str, num_bytes: int, limits: Limits, part: Path | None = None) -> None:
    if num_bytes <= limits.max_download_bytes:
        return
    if part is not None:
        part.unlink(missing_ok=True)
        _state_file(part).unlink(missing_ok=True)
    raise UserError(
        f"downloads have at most {limits.max_download_bytes} bytes: {url} has {num_bytes} or more. "
        "Raise Limits.max_download_bytes if you trust it."
    )


def _total(response: Any, start: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isascii() and length.isdigit() else None


def _range_start(response: Any) -> int:
    """The first byte of `Content-Range: bytes 100-199/200`, or -1."""
    text = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(text) if text.isascii() and text.isdigit() else -1


def _state_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_state(part: Path, url: str) -> str | None:
    """What identifies the content that a part belongs to; None if it cannot be resumed."""
    try:
        state = json.loads(_state_file(part).read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict) or state.get("url") != url:
        return None
    validator = state.get("validator")
    return validator if isinstance(validator, str) else None


def _write_state(part: Path, url: str, response: Any) -> None:
    validator = response.headers.get("ETag")
    if validator is None or validator.startswith("W/"):  # a weak one may not be used for ranges
        validator = response.headers.get("Last-Modified")
    _state_file(part).write_text(json.dumps({"url": url, "validator": validator}))


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects within http and https, and never from https to http."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        new, old = urlsplit(newurl).scheme, urlsplit(req.full_url).scheme
        if new not in ("http", "https") or (old, new) == ("https", "http"):
            raise UserError(f"{req.full_url} redirects to {newurl}, which is not as safe.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """An opener that knows http and https alone: no file:, no ftp:."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _SafeRedirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener

"""A private certificate authority, by the program openssl."""

from __future__ import annotations

import ipaddress
import re
import secrets
import subprocess
from pathlib import Path

from gtjax.core.errors import UserError

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca-key.pem"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make_certificates(
    folder: Path, hosts: tuple[str, ...], days: int
) -> dict[str, tuple[Path, Path]]:
    """Certificate and key of each host, signed by the authority of the folder, made if need be."""
    if not hosts:
        raise UserError("--hosts names at least one host, such as --hosts trainer-0 trainer-1")
    if days < 1:
        raise UserError(f"--days is at least 1; found {days}")
    for host in hosts:
        if not _is_address(host) and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62})", host):
            raise UserError(f"--hosts takes names or addresses of hosts; found {host!r}")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    paths = {host: _files(folder, host) for host in hosts}
    for path in (path for both in paths.values() for path in both):
        if path.exists():
            raise UserError(f"{path} exists. Remove it, or choose another folder.")
    authority, key = folder / AUTHORITY, folder / AUTHORITY_KEY
    if not authority.exists():
        _openssl(
            *("req", "-x509", *CURVE, "-keyout", str(key), "-out", str(authority)),
            *("-days", str(days), "-subj", "/CN=gtjax private authority"),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )
    elif not key.exists():
        raise UserError(f"{authority} is there, but not its key {key}: nothing can be signed")
    for host, (certificate, own_key) in paths.items():
        _sign(folder, host, certificate, own_key, days)
    return paths


def _sign(folder: Path, host: str, certificate: Path, key: Path, days: int) -> None:
    kind = "IP" if _is_address(host) else "DNS"
    request, extensions = folder / "request.tmp", folder / "extensions.tmp"
    extensions.write_text(
        f"subjectAltName={kind}:{host}\n"
        "basicConstraints=critical,CA:FALSE\n"
        "keyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth,clientAuth\n",  # any process may be the first one
        encoding="ascii",
    )
    try:
        _openssl(
            *("req", "-new", *CURVE, "-keyout", str(key), "-out", str(request)),
            *("-subj", f"/CN={host}"),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-out", str(certificate), "-days", str(days)),
            *("-CA", str(folder / AUTHORITY), "-CAkey", str(folder / AUTHORITY_KEY)),
            *("-set_serial", f"0x4{secrets.token_hex(15)}", "-extfile", str(extensions)),
        )
    finally:
        request.unlink(missing_ok=True)
        extensions.unlink(missing_ok=True)


def _openssl(*words: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *words], capture_output=True, text=True, check=False, umask=0o077
        )
    except FileNotFoundError:
        raise UserError("gtjax certificates calls openssl, which is not here: install it") from None
    if done.returncode:
        raise UserError(f"openssl {words[0]} failed: {done.stderr.strip()}")


def _files(folder: Path, host: str) -> tuple[Path, Path]:
    name = host.replace(":", "_")
    return folder / f"{name}.pem", folder / f"{name}-key.pem"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

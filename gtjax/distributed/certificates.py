"""Certificates of mTLS: refused here, with the reason, before anything is sent.

gRPC, which jax joins by, says of all of this no more than that there is no connection. So the files
are tried on themselves, both ends of a handshake in memory.
"""

from __future__ import annotations

import inspect
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gtjax.core.errors import UserError

ADVICE = "gtjax certificates FOLDER --hosts HOST ... makes certificates that fit together"


@dataclass(frozen=True)
class Certificates:
    """Files of one process."""

    cert: Path
    key: Path
    ca: Path

    @staticmethod
    def of(cert: Path | None, key: Path | None, ca: Path | None) -> Certificates | None:
        """All three, or None."""
        names = {"cert": cert, "key": key, "ca": ca}
        host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        given = {
            name: Path(str(path).replace("{host}", host))
            for name, path in names.items()
            if path is not None
        }
        if not given:
            return None
        for name in names.keys() - given.keys():
            raise UserError(
                f"--mtls-cert, --mtls-key and --mtls-ca go together; --mtls-{name} lacks. {ADVICE}."
            )
        for name, path in given.items():
            if not path.is_file():
                raise UserError(f"--mtls-{name} {path}: no such file. {ADVICE}.")
        return Certificates(**given)

    def contexts(self, listens_as: str | None) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """To listen and to connect; `listens_as` is the name that others call this process by."""
        server = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        server.verify_mode = ssl.CERT_REQUIRED
        client = self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        client.check_hostname = listens_as is not None
        try:
            _shaken_hands(server, client, listens_as)
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"--mtls-cert {self.cert} is refused by --mtls-ca {self.ca}: "
                f"{error.verify_message}. {ADVICE}."
            ) from error
        client.check_hostname = True
        return server, client

    def for_jax(self) -> dict[str, str]:
        """The arguments that jax takes."""
        import jax

        if "mtls_cert_file" not in inspect.signature(jax.distributed.initialize).parameters:
            raise UserError(f"--mtls-cert needs jax 0.12 or later; this is {jax.__version__}")
        return {
            "mtls_cert_file": str(self.cert),
            "mtls_key_file": str(self.key),
            "mtls_ca_file": str(self.ca),
        }

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_verify_locations(self.ca)
        except (ssl.SSLError, OSError) as error:
            why = getattr(error, "reason", None) or error.strerror or error
            raise UserError(f"--mtls-ca {self.ca} is no certificate: {why}. {ADVICE}.") from error
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                said = f"--mtls-key {self.key} does not belong to --mtls-cert {self.cert}"
            else:
                said = f"--mtls-cert {self.cert} and --mtls-key {self.key} cannot be read"
                said += f" as PEM ({error.reason or error})"
            raise UserError(f"{said}. {ADVICE}.") from error
        except OSError as error:
            raise UserError(f"--mtls-key {self.key} cannot be read: {error.strerror}") from error
        return context


def _no_password() -> str:
    raise UserError("--mtls-key is without a password: nobody is there to type it")


def _shaken_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> None:
    """A handshake of a process with itself, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    host = (name or "self").strip("[]")
    ends: list[Any] = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):  # messages go back and forth a few times
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue

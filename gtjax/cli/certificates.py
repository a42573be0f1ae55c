"""`gtjax certificates FOLDER`: a private authority, and certificates for the hosts of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from gtjax.cli.arguments import parse


@dataclass(frozen=True)
class CertificatesArguments:
    """Make a private authority and certificates signed by it, for mTLS between the hosts of a run.

    In a folder that has an authority already, it signs those of further hosts. Needs openssl."""

    folder: tyro.conf.Positional[Path]
    """Where to write them; nobody else may read it."""
    hosts: tuple[str, ...]
    """Names or addresses of the hosts, as --coordinator and schedulers call them."""
    days: int = 365
    """How long they are valid."""


def run(argv: list[str]) -> int:
    """Make the files, and say how to use them."""
    arguments = parse(CertificatesArguments, "certificates", argv)

    from gtjax.distributed.authority import AUTHORITY, AUTHORITY_KEY, make_certificates

    made = make_certificates(arguments.folder, arguments.hosts, arguments.days)
    for host, (certificate, key) in made.items():
        print(f"{host}: {certificate}, {key}")
    print(
        f"authority: {arguments.folder / AUTHORITY}\n\n"
        f"Give each host its two files and {AUTHORITY}, and its processes\n"
        f"  --mtls-cert HOST.pem --mtls-key HOST-key.pem --mtls-ca {AUTHORITY}\n"
        f"Keep {AUTHORITY_KEY} to yourself: whoever has it can make certificates for anyone."
    )
    return 0

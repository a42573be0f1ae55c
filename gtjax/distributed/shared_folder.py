"""Whether all hosts see the folder of a run, which the first process has made or found."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from pathlib import Path

from gtjax.core.errors import UserError
from gtjax.distributed.exits import ToldError
from gtjax.distributed.team import Team

PATIENCE_SECONDS = 20.0  # that a file may take to show on other hosts, as over NFS


def check_seen_by_all(team: Team, folder: Path) -> None:
    """Every process looks for a file that the first has just made: the same name is not enough."""
    if team.is_alone:
        return

    def made() -> list[str] | None:
        path = folder / f".seen-{secrets.token_hex(8)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except (OSError, ValueError):  # who has to write there tells of it
            return None
        return [path.name, str(folder.absolute()), socket.gethostname()]

    known = team.from_first(made)
    if known is None:
        return
    name, there, first_host = known
    seen = team.is_first or _seen(folder / name)
    here = None if seen else [socket.gethostname(), str(folder.absolute())]
    found = team.first_found(here)
    if team.is_first:
        (folder / name).unlink(missing_ok=True)
    if found is not None:
        index, (host, path) = found
        said = (
            f"process {index} on {host} does not see the folder of runs that process 0 on "
            f"{first_host} uses: {path} is not {there} there. Give --out in a file system that "
            "all hosts share, by its full path."
        )
        raise UserError(said) if team.is_first else ToldError(said)


def _seen(path: Path) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            list(path.parent.iterdir())  # makes NFS look again
            if path.exists():
                return True
        time.sleep(0.2)
    return False

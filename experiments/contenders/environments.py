"""Virtual environments of the peers, made on first use: what they need does not go with gtjax.

Packages come by name from wherever pip is set up to take them. Torch's default wheels want
gigabytes of CUDA libraries; they are left out where torch loads without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from contenders.work import Absent

# DGL asks for a back end, and writes the answer into the home folder, unless it is told.
PEER_ENVIRONMENT = {"DGLBACKEND": "pytorch"}
NEEDED_BY_TORCH = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec")


@dataclass(frozen=True)
class Peer:
    """A library to compare with: what to install, and what must then import."""

    torch: str
    alone: tuple[str, ...]  # installed without what they ask for
    packages: tuple[str, ...]
    imports: str
    python: tuple[int, int] | None = None  # the only version it runs on


PEERS = {
    "pyg": Peer("torch==2.13.0", (), ("torch-geometric", "numpy"), "torch, torch_geometric"),
    # The newest DGL on the package index: of 2024, for that year's torch, numpy and torchdata.
    "dgl": Peer(
        "torch==2.2.1",
        ("dgl==2.1.0", "torchdata==0.7.1"),
        (
            *("numpy<2", "scipy", "pandas", "pydantic", "pyyaml", "requests", "tqdm"),
            *("psutil", "urllib3", "setuptools<81"),
        ),
        "torch, dgl",
        python=(3, 11),
    ),
}


def interpreter(name: str, folder: Path) -> Path:
    """The Python of a peer's environment, which is made if it is not there; `Absent` says why not.

    A folder that holds a part of an environment, or one made for other versions, is made anew.
    If `GTJAX_PEER_PYG` or `GTJAX_PEER_DGL` names a Python, that one is taken instead.
    """
    if own := os.environ.get(f"GTJAX_PEER_{name.upper()}"):
        return Path(own)
    peer, home = PEERS[name], folder / name
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = home / "complete.txt"
    recipe = f"{peer}\n{_version(peer)}\n"
    if done.is_file() and done.read_text(encoding="utf-8") == recipe:
        return python
    print(f"{name}: making its environment in {home} (once; minutes, and up to 6 GB)", flush=True)
    if home.exists():
        shutil.rmtree(home)
    _run([_base_python(peer), "-m", "venv", str(home)], f"{name}: no virtual environment")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    failed = f"{name} cannot be installed"
    _run([*pip, "--no-deps", peer.torch, *peer.alone], failed)
    _run([*pip, *NEEDED_BY_TORCH, *peer.packages], failed)
    probe = [str(python), "-c", f"import {peer.imports}"]
    try:
        _run(probe, failed)
    except Absent:
        _run([*pip, peer.torch], failed)  # with what it asks for
        _run(probe, f"{name} is installed but does not import")
    done.write_text(recipe, encoding="utf-8")
    return python


def _version(peer: Peer) -> tuple[int, int]:
    return peer.python or sys.version_info[:2]


def _base_python(peer: Peer) -> str:
    if peer.python in (None, sys.version_info[:2]):
        return sys.executable
    wanted = ".".join(map(str, peer.python))
    found = shutil.which(f"python{wanted}")
    if found is None:
        raise Absent(f"it needs Python {wanted}, which is not on the PATH")
    _run([found, "-c", "import venv"], f"it needs Python {wanted}")
    return found


def _run(command: list[str], failed: str) -> None:
    hidden = ("PYTHONPATH", "PYTHONHOME", "PYTHONWARNINGS", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=environment | PEER_ENVIRONMENT,
        )
    except OSError as error:
        raise Absent(f"{failed}: {error}") from error
    if done.returncode:
        raise Absent(f"{failed}: {last_words(done.stdout)}")


def last_words(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("WARNING", "[notice]"))]
    return said[-1] if said else "no reason given"

"""The walk of a newcomer: everything that the README and the examples say, in a fresh environment.

    python experiments/newcomer.py [--python PYTHON]

Makes a virtual environment in a temporary folder, installs this checkout into it, and runs the
README's `gtjax` commands and Python and all examples, each for itself. `path/to/graph.npz` is a
small graph that is made first; steps are lowered where a command does not say how many. Prints what
each took, and ends with exit code 0 if all of them did. The tests are not run again.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXTRAS = "networkx,pandas,safetensors"
MAKE = (
    "import gtjax; gtjax.save_npz(gtjax.load('synthetic-citation:nodes=500'), 'path/to/graph.npz')"
)


def main() -> int:
    """Walk; returns how many steps failed."""
    parser = argparse.ArgumentParser(description="The walk of a newcomer.")
    parser.add_argument("--python", default=sys.executable, help="to make the environment with")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return walk(arguments.python, Path(folder))


def walk(python: str, home: Path) -> int:
    """All of it in `home`."""
    steps: list[tuple[str, list[str]]] = [("make an environment", [python, "-m", "venv", "venv"])]
    own = str(home / "venv" / "bin" / "python")
    install = [own, "-m", "pip", "install", "-q", "-e", f"{ROOT}[{EXTRAS}]"]
    steps += [("pip install -e .", install), ("a graph", [own, "-c", MAKE])]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(readme)
    for words in commands(blocks):
        steps.append((shlex.join(words), [str(home / "venv" / "bin" / words[0]), *words[1:]]))
    code = "\n".join(body for language, body in blocks if language == "python")
    start = 'import jax; jax.config.update("jax_num_cpu_devices", 4)\n'
    steps.append(("the README's Python", [own, "-c", start + code]))
    for path in sorted((ROOT / "experiments" / "examples").glob("*.py")):
        steps.append((path.name, [own, str(path)]))
    (home / "path" / "to").mkdir(parents=True)
    return sum(not done(title, command, home) for title, command in steps)


def commands(blocks: list[tuple[str, str]]) -> list[list[str]]:
    """The README's gtjax commands, in their order."""
    lines = [
        line for language, body in blocks if language == "console" for line in body.split("\n")
    ]
    found = [shlex.split(line) for line in ["gtjax train", *lines] if line.startswith("gtjax ")]
    short = {"train": ["--steps", "20"]}
    return [
        words
        + (short.get(words[1], []) if "--steps" not in words and "--help" not in words else [])
        for words in found
    ]


def done(title: str, command: list[str], home: Path) -> bool:
    """Run one step, and say what came of it."""
    started = time.monotonic()
    known = {"PYTHONPATH", "PYTHONHOME"}
    environment = {name: value for name, value in os.environ.items() if name not in known}
    result = subprocess.run(
        command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    seconds = time.monotonic() - started
    print(
        f"{'ok    ' if result.returncode == 0 else 'FAILED'} {seconds:6.1f} s  {title}", flush=True
    )
    if result.returncode:
        print((result.stdout + result.stderr)[-2000:], flush=True)
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

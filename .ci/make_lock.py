"""Print the lock of the tested environment: exact versions and hashes, as pip resolves them now.

Run it with the Python to lock for, from a fresh virtual environment, at the root of the checkout:

    python .ci/make_lock.py > .ci/lock-3.11.txt

The lock names no registry: where packages come from is the machine's business, and the hashes say
whether they are the right ones. They are those of this platform's wheels only.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def resolve() -> list[dict]:
    """What pip would install for the tests, from nothing."""
    command = [sys.executable, "-m", "pip", "install", "-qqq", "--dry-run"]
    command += ["--ignore-installed", "--report", "-", f"{ROOT}[test]"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return json.loads(done.stdout)["install"]


def line(package: dict) -> str:
    """One requirement with its hash."""
    name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
    digest = package["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name}=={package['metadata']['version']} --hash=sha256:{digest}"


def main() -> None:
    """Print the lock."""
    packages = [package for package in resolve() if not package["is_direct"]]
    version = ".".join(platform.python_version_tuple()[:2])
    print(f"# Python {version}, {platform.system().lower()} {platform.machine()}; .ci/make_lock.py")
    print("\n".join(sorted(map(line, packages))))


if __name__ == "__main__":
    main()

"""Writes every measured table of the READMEs from the stored results.

    python experiments/tables.py [--check]

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->` in some README of this
repository. The script of an experiment has a function `table` that makes it of the JSON which the
experiment stored; `TABLES` says which belong together. `--check` writes nothing: it shows what
differs and ends with exit code 1 if anything does. It takes seconds, and runs no experiment.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# What stands in the marker: the script that makes the table, and what it makes it of.
TABLES = {
    "accuracy": ("accuracy", "accuracy/results.json"),
    "tuning": ("tuning", "tuning/results.json"),
    "seeds": ("seeds", "seeds/results.json"),
    "tasks": ("tasks", "tasks/results.json"),
    "strategies": ("strategies", "strategies/results.json"),
    "partition": ("partition", "partition/results.json"),
    "isolated": ("isolated", "isolated/results.json"),
    "aot": ("aot", "aot/results.json"),
    "chaos": ("chaos", "chaos/results.json"),
    "joining": ("joining", "joining/results.json"),
    "own_parts": ("own_parts", "own_parts/results.json"),
    "many_hosts": ("many_hosts", "many_hosts/results.json"),
    "elastic": ("elastic", "elastic/results.json"),
    "networks": ("networks", "networks/results.json"),
    "planner": ("planner", "planner/results.json"),
    "unseen": ("planner", "planner/unseen.json"),
    "links": ("planner_links", "planner/links.json"),
    "ops": ("ops", "ops/results.json"),
    "convert": ("convert", "convert/results.json"),
    "sampling": ("sampling", "sampling/results.json"),
    "cache": ("cache", "cache/results.json"),
    "sparse": ("sparse_features", "sparse_features/results.json"),
    "attention": ("contenders.table", "attention/results.json"),
    "gpu_code": ("attention_gpu_code", "attention/gpu_code.json"),
    "gpu_cache": ("attention_gpu_cache", "attention/gpu_cache.json"),
}
START, END = "<!-- table: {} -->\n", "<!-- end of table -->\n"
BLOCK = re.compile(START.format(r"(\S+)") + "(.*?)" + END, re.DOTALL)


def made(name: str, stored: Path = HERE) -> str:
    """The table of one experiment, of the results in the folder `stored`."""
    script, results = TABLES[name]
    path = stored / results
    return importlib.import_module(script).table(json.loads(path.read_text(encoding="utf-8")))


def written(text: str, stored: Path = HERE) -> str:
    """A README with all of its tables made anew."""

    def block(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES:
            sys.exit(f"there is no table {name!r}; known are {', '.join(TABLES)}")
        if START.format("")[:10] in found[2]:
            sys.exit(f"the table {name!r} has no end: put {END.strip()!r} after it")
        return f"{START.format(name)}\n{made(name, stored)}\n\n{END}"

    return BLOCK.sub(block, text)


def readmes(root: Path = ROOT) -> Iterator[Path]:
    """Every README of the repository."""
    folders = (root, *(root / name for name in ("experiments", "gtjax", "pallas_kernels")))
    for folder in folders:
        yield from sorted(folder.glob("README.md" if folder == root else "**/README.md"))


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    """Write the tables, or check them; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measured tables, from the stored results.")
    parser.add_argument("--check", action="store_true", help="write nothing; show what differs")
    arguments = parser.parse_args(argv)
    shown, differ = set(), False
    for path in readmes(root):
        before = path.read_text(encoding="utf-8")
        shown |= {found[1] for found in BLOCK.finditer(before)}
        after = written(before, root / "experiments")
        if after == before:
            continue
        differ = True
        name = str(path.relative_to(root))
        if arguments.check:
            old, new = (text.splitlines(keepends=True) for text in (before, after))
            stored = f"{name}, of stored results"
            sys.stdout.writelines(difflib.unified_diff(old, new, name, stored))
        else:
            path.write_text(after, encoding="utf-8")
            print(f"wrote {name}")
    if missing := TABLES.keys() - shown:
        sys.exit(
            f"no README shows {', '.join(sorted(missing))}: put {START.format('NAME')!r} there"
        )
    if differ and arguments.check:
        print("python experiments/tables.py writes the tables anew")
    return int(differ and arguments.check)


if __name__ == "__main__":
    sys.exit(main())

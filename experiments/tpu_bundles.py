"""Instructions an edge of the TPU kernels: bundles in the compiled programs, without a chip.

The compiler that comes with libtpu (`pip install -e ".[aot]"`) writes down the bundles that a
kernel consists of. A bundle is what a core starts in a cycle, so bundles an edge bound its time
from below, as the bytes an edge do. The op is dot-product attention, the graph an R-MAT of the size
of ogbn-arxiv with both directions of its edges, as in `attention_tpu_memory.py`.

    python experiments/tpu_bundles.py [--chip v5e:2x2] [--result FILE]

A tile's code counts once a tile, a block's once a block, and both are divided by the edges. Of the
two copies of a tile's code, for even and odd tiles, one counts; other branches count as if taken;
loops inside a tile's code do not, since they run on a core's first tile alone. Waiting for memory
is in none of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Before libtpu is loaded, which `attention_tpu_memory` does: where it writes what it compiled.
    DUMP = tempfile.TemporaryDirectory()
    os.environ["LIBTPU_INIT_ARGS"] = f"--xla_jf_dump_to={DUMP.name}"
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"

import jax.numpy as jnp
from attention_tpu_memory import (
    EDGES,
    HEADS,
    KERNEL,
    NODES,
    WIDTH,
    measure,
    ours,
    rmat,
)

from pallas_kernels import build_edges

RESULT = Path(__file__).parent / "attention" / "tpu_bundles.json"
PASSES = ("forward", "receivers", "senders")
BUNDLE = re.compile(r"\s*0x[0-9a-f]+\s+\w*\s*:\s*(>*)\s*\{(.*)")


def bundles_of(text: str, slots: int) -> tuple[int, int]:
    """How many bundles a block takes, and how many a tile of so many slots."""
    depths, copies = [], []
    for line in text.splitlines():
        if found := BUNDLE.match(line):
            # An empty bundle is in the loop that the one before it is in.
            depth = depths[-1] if found[2].startswith("}") and depths else len(found[1])
            if depth == 2 and "dma.hbm_to_vmem" in found[2]:
                copies.append(len(depths))
            depths.append(depth)
    if len(copies) != 2 * slots:
        raise ValueError(f"a tile has twice the copies of {slots} slots; found {len(copies)}")
    # From the first copy of an even tile to that of an odd one is as long as either's code.
    one = depths[copies[0] : copies[slots]].count(2)
    return depths.count(1), depths.count(2) - one


def of_passes(folder: Path, strips: Any) -> dict[str, Any]:
    """Bundles an edge of each pass, from what the compiler wrote last."""
    row = {}
    for name in PASSES:
        walked = strips.by_sender if name == "senders" else strips.by_receiver
        tiles, blocks = int(walked.tile_starts_b[-1]), walked.num_blocks
        files = folder.glob(f"*dot_product_{name}*-final_bundles.txt")
        newest = max(files, key=lambda file: file.stat().st_mtime_ns)
        of_block, of_tile = bundles_of(newest.read_text(encoding="utf-8"), walked.slots)
        row[name] = {
            "an_edge": round((of_tile * tiles + of_block * blocks) / EDGES, 2),
            "a_tile": of_tile,
            "a_block": of_block,
            "slots_an_edge": round(tiles * walked.slots / EDGES, 3),
        }
    return row


def main() -> None:
    """Compile, print a table, and store it."""
    parser = argparse.ArgumentParser(description="Bundles an edge of the TPU kernels.")
    parser.add_argument("--chip", default="v5e:2x2")
    parser.add_argument("--types", nargs="+", default=("float32", "bfloat16"))
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    senders, receivers = rmat(NODES, EDGES)
    edges = build_edges(
        senders, receivers, num_senders=NODES, num_receivers=NODES, forms=KERNEL.needs
    )
    rows = []
    for dtype in options.types:
        measure(options.chip, jnp.dtype(dtype), ours, edges)  # compiles, and thereby writes
        row = {"chip": options.chip.partition(":")[0], "dtype": dtype}
        rows.append(row | of_passes(Path(DUMP.name), edges.strips))
        figures = ", ".join(f"{name} {rows[-1][name]['an_edge']}" for name in PASSES)
        sys.stdout.write(f"{rows[-1]['chip']} {dtype}: bundles an edge {figures}\n")
    result = {
        "nodes": NODES,
        "edges": EDGES,
        "heads": HEADS,
        "head_width": WIDTH,
        "program": "forward and backward, compiled and not run",
        "versions": {name: version(name) for name in ("jax", "jaxlib", "libtpu")},
        "rows": rows,
    }
    options.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

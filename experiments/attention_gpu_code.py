"""Machine code of the GPU kernels of attention, compiled for GPUs that are not there.

    python experiments/attention_gpu_code.py [--architectures sm_80] [--types float32]

In an environment with `.[aot]`. Registers, bytes spilled and instructions of the loop over edges,
as NVIDIA's assembler makes them (`tests/kernels/gpu_compiler.py`). Instructions are those that
warps issue for an edge: a warp may have several rows, a row several warps, and the loop takes two
edges of each row at a time. The result is `experiments/attention/gpu_code.json`; with options, only
the rows that they name. Nothing is run, and nothing is said about time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pallas_kernels.passes.gpu import block_sizes

RESULTS = Path(__file__).parent / "attention" / "gpu_code.json"
ARCHITECTURES, TYPES = ("sm_80", "sm_90a"), ("float32", "bfloat16")
SHAPES = ("8x16", "8x8", "4x64", "1x256", "2x100", "6x24", "1x512", "1x1024")
PASSES = {"forward": "forward", "receivers": "dQ", "senders": "dK, dV"}
UNROLL = 2  # edges of a row that a loop takes at a time
PACKAGES = ("jax", "jaxlib", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12")


def compiled(architecture: str, dtype: str) -> list[dict[str, Any]]:
    """A row for every shape of heads."""
    command = [sys.executable, "-m", "tests.kernels.gpu_compiler", architecture, dtype]
    done = subprocess.run(
        [*command, *SHAPES, "dot_product"],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)["dot_product"]

    def warps_of_row(shape: str) -> float:
        heads, width = map(int, shape.split("x"))
        block = block_sizes(heads, width, dtype)
        return block.warps / block.pieces * -(-heads // block.heads)

    return [
        {
            "architecture": architecture,
            "dtype": dtype,
            "heads": shape,
            "warps_of_row": warps_of_row(shape),
            "spilled_bytes": sum(kernel["spilled bytes"] for kernel in kernels.values()),
            "registers": {name: kernels[name]["registers"] for name in PASSES},
            "loops": {name: kernels[name]["loops"] for name in PASSES},
        }
        for shape, kernels in found.items()
    ]


def table(results: dict[str, Any]) -> str:
    """The stored rows, as Markdown."""
    passes = " / ".join(PASSES.values())
    lines = [
        f"| GPU, type | heads x width | instructions per edge: {passes} | registers | spilled |",
        "|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        loops, warps = (row["loops"][name] for name in PASSES), row["warps_of_row"]
        per_edge = " / ".join(f"{loop[0] / UNROLL * warps:g}" if loop else "?" for loop in loops)
        registers = " / ".join(str(row["registers"][name]) for name in PASSES)
        cells = (f"{row['architecture']}, {row['dtype']}", row["heads"], per_edge, registers)
        lines.append("| " + " | ".join((*cells, str(row["spilled_bytes"]))) + " |")
    return "\n".join(lines)


def stored() -> dict[str, Any]:
    """What was compiled before, if anything."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"rows": []}


def store(architecture: str, dtype: str, rows: list[dict[str, Any]]) -> None:
    """Put rows in the place of those before."""
    key = (architecture, dtype)
    rows += [row for row in stored()["rows"] if (row["architecture"], row["dtype"]) != key]
    order = [(each, of) for each in ARCHITECTURES for of in TYPES]
    rows.sort(key=lambda row: order.index((row["architecture"], row["dtype"])))
    result = {
        "what": "attention compiled for GPUs, not run; instructions in loops of 2 edges",
        "versions": {name: version(name) for name in PACKAGES},
        "rows": rows,
        "command": "python experiments/attention_gpu_code.py",
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Compile, and store each type for each GPU as soon as it is there."""
    parser = argparse.ArgumentParser(description="Machine code of the GPU kernels of attention.")
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES, choices=ARCHITECTURES)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    options = parser.parse_args()
    for architecture in options.architectures:
        for dtype in options.types:
            store(architecture, dtype, compiled(architecture, dtype))
    print(table(stored()))


if __name__ == "__main__":
    main()

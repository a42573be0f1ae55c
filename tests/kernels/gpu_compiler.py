"""Compile the GPU kernels for a GPU that is not there, and say what became of them.

    python -m tests.kernels.gpu_compiler sm_90a float32 8x16 4x64 dot_product "gat, bias"

prints, as JSON, each kernel's registers, bytes spilled, machine instructions in its loops (for the
edges that are taken at a time) and instructions of interest, for ops by their names in
`op_cases.py`. Those with rows of edges have dropout too. It is a program of its own
because XLA reads where to put the PTX only once, when it starts. XLA's Triton gives the PTX;
`ptxas` of NVIDIA's wheel makes it machine code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kernels.sass import loop_lengths

# What the compiler asks of a device, from the data sheets of an A100 (40 GB) and an H100 (SXM).
_DEVICES = {
    "sm_80": {
        "cuda_compute_capability": {"major": 8, "minor": 0},
        "core_count": 108,
        "clock_rate_ghz": 1.41,
        "memory_bandwidth": 1_555_000_000_000,
        "l2_cache_size": 40 << 20,
        "device_memory_size": 40 << 30,
        "shared_memory_per_core": 164 << 10,
        "shared_memory_per_block_optin": 163 << 10,
        "fpus_per_core": 64,
    },
    "sm_90a": {
        "cuda_compute_capability": {"major": 9, "minor": 0},
        "core_count": 132,
        "clock_rate_ghz": 1.98,
        "memory_bandwidth": 3_350_000_000_000,
        "l2_cache_size": 50 << 20,
        "device_memory_size": 80 << 30,
        "shared_memory_per_core": 228 << 10,
        "shared_memory_per_block_optin": 227 << 10,
        "fpus_per_core": 128,
    },
}
_BOTH = {
    "threads_per_warp": 32,
    "threads_per_block_limit": 1024,
    "threads_per_core_limit": 2048,
    "shared_memory_per_block": 48 << 10,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
}
INSTRUCTIONS = {
    "instructions": r"(?m)^\s+(?:@\S+ )?[a-z]\S* .*;$",
    "wide loads": r"ld\.global\S*\.v4\.",
    "barriers": r"\bbar\.",
    "atomics": r"\b(?:atom|red)\.",
}


def device_description(architecture: str) -> str:
    """The device as the text of a protocol buffer, which is how XLA takes it."""

    def text(fields: dict) -> str:
        return " ".join(
            f"{name} {{ {text(value)} }}" if isinstance(value, dict) else f"{name}: {value}"
            for name, value in fields.items()
        )

    return f'gpu_device_info {{ {text(_BOTH | _DEVICES[architecture])} }} platform_name: "CUDA"'


def compile_kernels(
    architecture: str, case: str, heads: int, width: int, dtype: str, folder: Path
) -> dict:
    """Report on every kernel of both passes of an op."""
    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    from tests.kernels.op_programs import both_passes, row_shapes
    from tests.kernels.test_export_gpu import edges_with_hubs

    topology = topologies.get_topology_desc(
        platform="cuda", target_config=device_description(architecture), topology="1x1x1"
    )
    on_device = SingleDeviceSharding(topology.devices[0])
    edges = edges_with_hubs()
    nodes = len(edges.offsets_r) - 1
    rows = row_shapes(case, nodes, edges.num_edges, heads, width, dtype, sharding=on_device)
    edge_shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=on_device), edges
    )
    for file in folder.iterdir():
        file.unlink()
    step = both_passes(case, "gpu", rate=0.3 if rows["edge"] is not None else 0.0)
    jax.jit(step).lower(rows, edge_shapes).compile()
    report = {}
    for file in folder.glob("*.ptx"):
        report |= machine_code(file, architecture)
    return report


def machine_code(ptx: Path, architecture: str) -> dict:
    """Registers, spills and instructions of our kernels in a PTX file."""
    text = ptx.read_text()
    if not text.strip():
        return {}
    made = ptx.with_suffix(".cubin")
    command = [_ptxas(), "-v", f"-arch={architecture}", str(ptx), "-o", str(made)]
    verbose = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    kernels = {}
    pattern = r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes.*?Used (\d+) reg"
    for name, stored, loaded, registers in re.findall(pattern, verbose, re.DOTALL):
        if not re.fullmatch(r"(forward|receivers|senders)(_merge)?", name):
            continue  # XLA's own
        body = text[text.index(f".entry {name}(") :].split("\n}\n", 1)[0]
        counts = {what: len(re.findall(op, body)) for what, op in INSTRUCTIONS.items()}
        spills = int(stored) + int(loaded)
        loops = loop_lengths(made.read_bytes(), name, architecture)
        facts = {"registers": int(registers), "spilled bytes": spills, "loops": loops}
        kernels[name] = facts | counts
    return kernels


def _ptxas() -> str:
    import nvidia.cuda_nvcc

    return str(Path(next(iter(nvidia.cuda_nvcc.__path__))) / "bin" / "ptxas")


def main() -> None:
    """Compile for the architecture, type, shapes of heads and ops on the command line."""
    architecture, dtype, *rest = sys.argv[1:]
    shapes = [word for word in rest if re.fullmatch(r"\d+x\d+", word)]
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}"
        for case in (word for word in rest if word not in shapes):
            report[case] = {}
            for shape in shapes:
                heads, width = map(int, shape.split("x"))
                report[case][shape] = compile_kernels(
                    architecture, case, heads, width, dtype, Path(folder)
                )
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Temporary memory of attention on a TPU, ours against segment operations, by compiling alone.

Nobody has to own a TPU for this: the compiler that comes with libtpu (`pip install -e ".[aot]"`)
says how much memory a program takes on a chip that it compiles for. The graph is an R-MAT of the
size of ogbn-arxiv with both directions of its edges; the program is forward and backward.

    python experiments/attention_tpu_memory.py

It writes `experiments/attention/tpu_memory.json`. What is compared is `temp_size_in_bytes`: inputs,
results and the layout of the edges, which are arguments, are not in it (they are listed beside it).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before libtpu is loaded: compile only, without looking for a chip or for the machine's name.
os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
}

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pallas_kernels import DOT_PRODUCT, build_edges, segment_attention

NODES, EDGES, HEADS, WIDTH = 170_000, 2_300_000, 8, 16
KERNEL = DOT_PRODUCT.kernel("tpu", "tpu")
CHIPS = ("v5e:2x2", "v6e:2x2")
TARGET = 20  # times less memory than segment operations
RESULT = Path(__file__).parent / "attention" / "tpu_memory.json"


def rmat(nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, sorted by receiver, of an R-MAT graph (Chakrabarti et al. 2004)."""
    rng = np.random.default_rng(0)
    ends = np.zeros((2, edges), np.int64)
    for _ in range(int(np.ceil(np.log2(nodes)))):
        quadrant = rng.choice(4, edges, p=(0.57, 0.19, 0.19, 0.05))
        ends = ends * 2 + np.stack([quadrant // 2, quadrant % 2])
    # Numbers past the last node wrap round; a random order parts the hubs, as real numbering does.
    senders, receivers = rng.permutation(nodes)[ends % nodes]
    order = np.argsort(receivers, kind="stable")
    return senders[order].astype(np.int32), receivers[order].astype(np.int32)


def segment_operations(q: Any, k: Any, v: Any, edges: tuple[Any, Any]) -> Any:
    """Attention as one writes it with `jax.ops`."""
    senders, receivers = edges
    count = q.shape[0]
    logits = (q[receivers] * k[senders]).sum(axis=-1) * q.shape[-1] ** -0.5
    largest = jax.ops.segment_max(logits, receivers, count, indices_are_sorted=True)
    weights = jnp.exp(logits - largest[receivers])
    total = jax.ops.segment_sum(weights, receivers, count, indices_are_sorted=True)
    weights = (weights / total[receivers])[..., None]
    return jax.ops.segment_sum(weights * v[senders], receivers, count, indices_are_sorted=True)


def ours(q: Any, k: Any, v: Any, edges: Any) -> Any:
    """Attention by the kernel made for the TPU."""
    return segment_attention(q, k, v, edges, kernel=KERNEL)


def measure(chip: str, dtype: Any, attend: Callable[..., Any], edges: Any) -> dict[str, float]:
    """Compile forward and backward for a chip; mebibytes."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=chip).devices
    mesh = Mesh(np.array(devices[:1]), ("x",))

    def shape_of(array: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, PartitionSpec())
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    def both(q: Any, k: Any, v: Any, dout: Any, edges: Any) -> Any:
        out, pullback = jax.vjp(lambda q, k, v: attend(q, k, v, edges), q, k, v)
        return out, pullback(dout)

    qkvd = [shape_of(jax.ShapeDtypeStruct((NODES, HEADS, WIDTH), dtype))] * 4
    with jax.set_mesh(mesh):
        program = jax.jit(both).lower(*qkvd, jax.tree.map(shape_of, edges)).compile()
    memory = program.memory_analysis()
    assert memory is not None
    return {
        "temporary_mib": round(memory.temp_size_in_bytes / 2**20, 1),
        "arguments_mib": round(memory.argument_size_in_bytes / 2**20, 1),
        "results_mib": round(memory.output_size_in_bytes / 2**20, 1),
    }


def main() -> None:
    """Compile, print a table, and store it."""
    senders, receivers = rmat(NODES, EDGES)
    strips = build_edges(
        senders, receivers, num_senders=NODES, num_receivers=NODES, forms=KERNEL.needs
    )
    rows = []
    for chip in CHIPS:
        for dtype in (jnp.float32, jnp.bfloat16):
            plain = measure(chip, dtype, segment_operations, (senders, receivers))
            fused = measure(chip, dtype, ours, strips)
            ratio = plain["temporary_mib"] / fused["temporary_mib"]
            rows.append(
                {
                    "chip": chip.partition(":")[0],
                    "dtype": jnp.dtype(dtype).name,
                    "segment_operations": plain,
                    "ours": fused,
                    "times_less": round(ratio, 1),
                }
            )
            print(
                f"{rows[-1]['chip']:>4} {rows[-1]['dtype']:>9}: segment operations "
                f"{plain['temporary_mib']:>8} MiB, ours {fused['temporary_mib']:>6} MiB, "
                f"{ratio:.1f} times less (aim: {TARGET})",
                flush=True,
            )
    result = {
        "nodes": NODES,
        "edges": EDGES,
        "heads": HEADS,
        "head_width": WIDTH,
        "largest_degree": int(np.bincount(receivers).max()),
        "program": "forward and backward, compiled and not run",
        "versions": {name: version(name) for name in ("jax", "jaxlib", "libtpu", "numpy")},
        "rows": rows,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Memory of attention and its gradients on a GPU, as XLA plans it, without the GPU.

    python experiments/attention_gpu_memory.py DEVICE.txtpb

DEVICE.txtpb describes the GPU as XLA's `GpuTargetConfigProto` in text form; `gtjax[aot]` brings the
compiler. For each way of computing attention over a skewed graph (R-MAT, Chakrabarti et al. 2004)
the forward and backward pass are compiled as one program, and the result is
`experiments/attention/gpu_memory.json`: bytes of arguments, results and temporaries. They are
exact, since XLA plans memory when it compiles; they say nothing about time.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before jax is loaded: without it, and without a GPU, the plugin of the compiler is not loaded.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from pallas_kernels import DOT_PRODUCT, build_edges, segment_attention

RESULTS = Path(__file__).parent / "attention" / "gpu_memory.json"
NODES, EDGES, HEADS, WIDTH = 170_000, 2_300_000, 8, 16
KERNEL = DOT_PRODUCT.kernel("gpu", "gpu")
PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda12-pjrt")


def rmat_edges(nodes: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers of a skewed graph, sorted by receiver."""
    rng = np.random.default_rng(seed)
    ends_2e = np.zeros((2, count), np.int64)
    for _ in range((nodes - 1).bit_length()):
        quadrant_e = rng.choice(4, count, p=(0.57, 0.19, 0.19, 0.05))
        ends_2e = 2 * ends_2e + np.stack([quadrant_e // 2, quadrant_e % 2])
    ends_2e %= nodes
    return tuple(ends_2e[:, np.argsort(ends_2e[1], kind="stable")])


def by_segment_ops(q: jax.Array, k: jax.Array, v: jax.Array, inputs: Any) -> jax.Array:
    """The usual program: one logit, one weight and one value for every edge at a time."""
    senders_e, receivers_e = inputs
    logits_eh = (q[receivers_e] * k[senders_e]).sum(-1) * WIDTH**-0.5
    max_rh = jax.ops.segment_max(logits_eh, receivers_e, NODES, indices_are_sorted=True)
    weights_eh = jnp.exp(logits_eh - jax.lax.stop_gradient(max_rh)[receivers_e])
    sums_rh = jax.ops.segment_sum(weights_eh, receivers_e, NODES, indices_are_sorted=True)
    weights_eh /= sums_rh[receivers_e]
    values_ehd = weights_eh[..., None] * v[senders_e]
    return jax.ops.segment_sum(values_ehd, receivers_e, NODES, indices_are_sorted=True)


def by_kernels(q: jax.Array, k: jax.Array, v: jax.Array, edges: Any) -> jax.Array:
    """Our GPU kernel."""
    return segment_attention(q, k, v, edges, kernel=KERNEL)


def planned_memory(attend: Callable[..., jax.Array], inputs: Any, dtype: Any, place: Any) -> dict:
    """Bytes of the forward and backward pass as one program."""

    def step(q: jax.Array, k: jax.Array, v: jax.Array, dout: jax.Array, inputs: Any) -> Any:
        out, pullback = jax.vjp(lambda q, k, v: attend(q, k, v, inputs), q, k, v)
        return out, pullback(dout.astype(out.dtype))

    def shaped(array: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)

    row = shaped(jax.ShapeDtypeStruct((NODES, HEADS, WIDTH), dtype))
    lowered = jax.jit(step).lower(row, row, row, row, jax.tree.map(shaped, inputs))
    analysis = lowered.compile().memory_analysis()
    assert analysis is not None
    return {
        "argument_bytes": analysis.argument_size_in_bytes,
        "output_bytes": analysis.output_size_in_bytes,
        "temporary_bytes": analysis.temp_size_in_bytes,
    }


def main() -> None:
    """Compile every way for the device, and store what it takes."""
    parser = argparse.ArgumentParser(description="Planned memory of attention on a GPU.")
    parser.add_argument("device", type=Path, help="description of the GPU, text form")
    description = parser.parse_args().device.read_text(encoding="utf-8")
    topology = topologies.get_topology_desc(
        platform="cuda", target_config=description, topology="1x1x1"
    )
    place = SingleDeviceSharding(topology.devices[0])
    senders_e, receivers_e = rmat_edges(NODES, EDGES)
    edges = build_edges(
        senders_e,
        receivers_e,
        num_senders=NODES,
        num_receivers=NODES,
        forms=KERNEL.needs,
    )
    ends = (senders_e.astype(np.int32), receivers_e.astype(np.int32))
    ways: dict[str, tuple[Callable[..., jax.Array], Any]] = {
        "segment ops": (by_segment_ops, ends),
        "gpu": (by_kernels, edges),
    }
    memory = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        for name, (attend, inputs) in ways.items():
            key = f"{name}, {jnp.dtype(dtype).name}"
            memory[key] = planned_memory(attend, inputs, dtype, place)
            print(key, memory[key], flush=True)
    result = {
        "what": "forward and backward of attention in one program, without bias and dropout",
        "note": "segment ops accumulate in the type of the inputs, the kernels always in float32",
        "graph": f"R-MAT, {NODES} nodes, {EDGES} edges",
        "heads": HEADS,
        "width": WIDTH,
        "device": topology.devices[0].device_kind,
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "one_row_of_all_nodes_float32_bytes": NODES * HEADS * WIDTH * 4,
        "memory": memory,
        "command": "python experiments/attention_gpu_memory.py DEVICE.txtpb",
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

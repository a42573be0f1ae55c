"""Compiles attention for a TPU that is not there, and prints what came of it as lines of JSON.

A process of its own, since libtpu reads its settings from the environment and stays loaded:

    python -m tests.kernels.aot_tpu_programs v5e:2x4
"""

from __future__ import annotations

import json
import os
import sys

os.environ |= {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pallas_kernels.segment_attention import BACKENDS, Dropout, build_edges, segment_attention

# Heads, width, type, and whether there are bias and dropout.
PROGRAMS = [
    (8, 16, "float32", False),
    (8, 16, "bfloat16", False),
    (8, 16, "float32", True),
    (3, 8, "bfloat16", True),
    (4, 100, "float32", False),
    (5, 256, "bfloat16", False),
]
# Large enough for tables that XLA cannot put into VMEM as a whole, as it does with small ones.
NODES, EDGES = 170_003, 2_300_001


def random_edges(seed):
    rng = np.random.default_rng(seed)
    receivers = np.sort((rng.random(EDGES) ** 4 * NODES).astype(np.int32))  # some of them hubs
    senders = rng.integers(0, NODES, EDGES).astype(np.int32)
    return build_edges(
        senders, receivers, num_senders=NODES, num_receivers=NODES, layouts=BACKENDS["tpu"].layouts
    )


def both(q, k, v, bias, dout, edges, seed):
    dropout = Dropout(0.0 if bias is None else 0.1, seed)

    def attend(q, k, v, bias):
        return segment_attention(q, k, v, edges, bias, dropout=dropout, kernel=BACKENDS["tpu"])

    out, pullback = jax.vjp(attend, q, k, v, bias)
    return out, pullback(dout)


def report(name, compiled):
    text, memory = compiled.as_text(), compiled.memory_analysis()
    found = {
        "program": name,
        "kernels": text.count('custom_call_target="tpu_custom_call"'),
        "temporary": memory.temp_size_in_bytes,
        "scatters": text.count(" scatter("),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def on_one_chip(devices):
    mesh = Mesh(np.array(devices[:1]), ("x",))

    def shape(shape, dtype):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec()))

    edges = jax.tree.map(lambda x: shape(x.shape, x.dtype), random_edges(0))
    for heads, width, dtype, extras in PROGRAMS:
        x = shape((NODES, heads, width), dtype)
        bias = shape((EDGES, heads), "float32") if extras else None
        arguments = (x, x, x, bias, x, edges, shape((), "uint32"))
        with jax.set_mesh(mesh):
            compiled = jax.jit(both).lower(*arguments).compile()
        report(f"{heads}x{width} {dtype}{' bias dropout' if extras else ''}", compiled)


def over_all_chips(devices):
    """Rows over the chips, each with edges of its own from all senders, under `check_vma`."""
    count = len(devices)
    mesh = Mesh(np.array(devices), ("node",))
    by_chip = NamedSharding(mesh, PartitionSpec("node"))

    def of_chip(q, k, v, dout, edges):
        edges = jax.tree.map(lambda x: x[0], edges)

        def attend(q, k, v):
            k, v = (jax.lax.all_gather(x, "node", tiled=True) for x in (k, v))
            return segment_attention(q, k, v, edges, kernel=BACKENDS["tpu"])

        out, pullback = jax.vjp(attend, q, k, v)
        return out, pullback(dout)

    rng = np.random.default_rng(0)
    rows = 40_009
    receivers = np.repeat(np.arange(rows, dtype=np.int32), 9)
    senders = rng.integers(0, rows * count, len(receivers)).astype(np.int32)
    edges = build_edges(
        senders,
        receivers,
        num_senders=rows * count,
        num_receivers=rows,
        layouts=BACKENDS["tpu"].layouts,
    )

    def stacked(x):
        return jax.ShapeDtypeStruct((count, *x.shape), x.dtype, sharding=by_chip)

    x = jax.ShapeDtypeStruct((rows * count, 8, 16), jnp.float32, sharding=by_chip)
    step = jax.shard_map(
        of_chip, mesh=mesh, in_specs=PartitionSpec("node"), out_specs=PartitionSpec("node")
    )
    with jax.set_mesh(mesh):
        compiled = jax.jit(step).lower(x, x, x, x, jax.tree.map(stacked, edges)).compile()
    report(f"shard_map over {count}", compiled)


if __name__ == "__main__":
    topology = topologies.get_topology_desc(platform="tpu", topology_name=sys.argv[1])
    over_all_chips(topology.devices)
    on_one_chip(topology.devices)

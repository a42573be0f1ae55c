"""Compiles ops for a TPU that is not there, and prints what came of it as lines of JSON.

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

from pallas_kernels import build_edges, segment_attention
from pallas_kernels.dot_product.tpu import TPU
from tests.kernels.op_programs import both_passes, row_shapes

# Op (as in `op_cases.py`), heads, width and type; those with rows of edges have dropout too.
PROGRAMS = [
    ("dot_product", 8, 16, "float32"),
    ("dot_product", 8, 16, "bfloat16"),
    ("dot_product, bias", 8, 16, "float32"),
    ("dot_product, bias", 3, 8, "bfloat16"),
    ("dot_product", 4, 100, "float32"),
    ("dot_product", 5, 256, "bfloat16"),
    ("gat", 8, 16, "float32"),
    ("gat, bias", 4, 64, "bfloat16"),
    ("gatv2", 8, 16, "float32"),
    ("gatv2, edges", 2, 8, "float32"),
    ("sum", 1, 256, "bfloat16"),
    ("sum, weights", 8, 16, "bfloat16"),
]
FEW = [PROGRAMS[0], PROGRAMS[6], PROGRAMS[8], PROGRAMS[11]]  # for chips whose compiler is the same
# Large enough for tables that XLA cannot put into VMEM as a whole, as it does with small ones.
NODES, EDGES = 170_003, 2_300_001


def programs_of(chip):
    """All of them for one chip, and one of each kind for the others."""
    return PROGRAMS if chip.startswith("v5e") else FEW


def random_edges(seed):
    rng = np.random.default_rng(seed)
    receivers = np.sort((rng.random(EDGES) ** 4 * NODES).astype(np.int32))  # some of them hubs
    senders = rng.integers(0, NODES, EDGES).astype(np.int32)
    return build_edges(senders, receivers, num_senders=NODES, num_receivers=NODES, forms=TPU.needs)


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


def on_one_chip(devices, programs):
    mesh = Mesh(np.array(devices[:1]), ("x",))

    everywhere = NamedSharding(mesh, PartitionSpec())
    edges = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), random_edges(0)
    )
    for case, heads, width, dtype in programs:
        rows = row_shapes(case, NODES, EDGES, heads, width, dtype, sharding=everywhere)
        step = both_passes(case, "tpu", rate=0.0 if rows["edge"] is None else 0.1)
        with jax.set_mesh(mesh):
            compiled = jax.jit(step).lower(rows, edges).compile()
        report(f"{case} {heads}x{width} {dtype}", compiled)


def over_all_chips(devices):
    """Rows over the chips, each with edges of its own from all senders, under `check_vma`."""
    count = len(devices)
    mesh = Mesh(np.array(devices), ("node",))
    by_chip = NamedSharding(mesh, PartitionSpec("node"))

    def of_chip(q, k, v, dout, edges):
        edges = jax.tree.map(lambda x: x[0], edges)

        def attend(q, k, v):
            k, v = (jax.lax.all_gather(x, "node", tiled=True) for x in (k, v))
            return segment_attention(q, k, v, edges, kernel=TPU)

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
        forms=TPU.needs,
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
    on_one_chip(topology.devices, programs_of(sys.argv[1]))

"""Compile what runs on a GPU without our kernels, for one that is not there, and say what it took.

    python -m tests.kernels.gpu_fallback sm_80

prints, as lines of JSON, seconds of the processor and bytes of temporary memory of a forward and
backward pass over a skewed graph. The larger graph exists as shapes alone: of the same tiles, so
many times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from pallas_kernels import DOT_PRODUCT, build_edges, segment_attention
from pallas_kernels.propagation import propagate
from tests.kernels.gpu_compiler import device_description

EDGES, HEADS, WIDTH = 2_300_001, 8, 16
FEW, MANY = 46_003, 170_003  # nodes: of mean degree 50, as ogbn-products, and 14, as ogbn-arxiv
LARGER = 43  # times as much: 99 million edges, and 2.0 or 7.3 million nodes
XLA = DOT_PRODUCT.kernel("xla", "gpu")


def skewed_edges(nodes: int) -> Any:
    """Hubs at both ends: four levels of merging, which XLA must not make one kernel of."""
    rng = np.random.default_rng(0)
    receivers = np.sort((rng.random(EDGES) ** 4 * nodes).astype(np.int32))
    senders = (rng.random(EDGES) ** 4 * nodes).astype(np.int32)
    edges = build_edges(senders, receivers, num_senders=nodes, num_receivers=nodes, forms=XLA.needs)
    assert edges.tilings is not None
    assert len(edges.tilings.by_receiver.merges) >= 4
    return edges


def attend(q: jax.Array, k: jax.Array, v: jax.Array, edges: Any) -> jax.Array:
    return segment_attention(q, k, v, edges, kernel=XLA)


def mix(q: jax.Array, k: jax.Array, v: jax.Array, edges: Any) -> jax.Array:
    return propagate(q, k, v, edges, rounds=4, restart=0.1, kernel=XLA)


def compiled(run: Any, nodes: int, times: int, place: Any) -> dict[str, float]:
    """Of both passes over the edges of so many nodes, so many times."""

    def step(q: jax.Array, k: jax.Array, v: jax.Array, dout: jax.Array, edges: Any) -> Any:
        out, pullback = jax.vjp(lambda q, k, v: run(q, k, v, edges), q, k, v)
        return out, pullback(dout)

    def shaped(x: Any) -> jax.ShapeDtypeStruct:
        size = x.shape[0] if x.shape[0] == 1 else x.shape[0] * times
        return jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype, sharding=place)

    row = shaped(jax.ShapeDtypeStruct((nodes, HEADS, WIDTH), jnp.float32))
    lowered = jax.jit(step).lower(row, row, row, row, jax.tree.map(shaped, skewed_edges(nodes)))
    start = time.process_time()
    memory = lowered.compile().memory_analysis()
    seconds = time.process_time() - start
    assert memory is not None
    return {"seconds": round(seconds, 1), "temporary": memory.temp_size_in_bytes}


def main() -> None:
    """Compile for the architecture on the command line."""
    target = device_description(sys.argv[1])
    topology = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x1")
    place = SingleDeviceSharding(topology.devices[0])
    for name, run, nodes, times in (
        ("attention", attend, MANY, 1),
        ("attention, larger", attend, FEW, LARGER),
        ("attention, larger, more nodes", attend, MANY, LARGER),
        ("propagation", mix, MANY, 1),
    ):
        found = {"program": name, **compiled(run, nodes, times, place)}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

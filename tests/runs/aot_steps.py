"""Compiles a training step under node strategies for TPUs that are not there; prints lines of JSON.

A process of its own, since libtpu reads its settings from the environment and stays loaded:

    python -m tests.runs.aot_steps v5e:2x4
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

from jax.experimental import topologies

from gtjax.batching.prepare import abstract_batch, prepare, whole_layout
from gtjax.graph import GENERATORS
from gtjax.nn import TransformerConfig
from gtjax.partition import partition_graph
from gtjax.runs.config import TrainConfig
from gtjax.runs.program import Program
from gtjax.sharding.collectives import bytes_received
from gtjax.sharding.config import ParallelConfig

# Those over the feature axis compile as well, but take a minute and more each.
STRATEGIES = ("node_all_gather", "node_halo", "node_halo ragged", "node_ring")
# Parts of more than 1024 rows, and tables that do not fit VMEM as a whole.
NODES, EDGES, HIDDEN = 40_009, 120_000, 128


def compile_step(name: str, devices) -> dict:
    graph = GENERATORS["rmat"](nodes=NODES, edges=EDGES, features=8)
    strategy, exchange, *_ = [*name.split(), "rounds"]
    config = TrainConfig(
        kernel="tpu",
        model=TransformerConfig(layers=1, hidden=HIDDEN, heads=8, feed_forward=0),
        parallel=ParallelConfig(strategy=strategy, exchange=exchange),
    )
    program = Program(config, graph, config.task_of(graph), devices)
    spread = program.spread
    host = prepare(graph, program.settings)
    edges = host.edges
    partition = partition_graph(edges, spread.shape.node, "contiguous")
    layout, _ = whole_layout(host, program.settings, spread, partition=partition)
    batch = abstract_batch(host, layout, spread)
    compiled = program.compiled(program.abstract_state(), batch, 1)
    (call, *_) = program.calls  # one layer, and so one op
    demand = spread.strategy.demand(partition.cut(edges), call.work, spread.shape)
    return {
        "strategy": name,
        "moved": bytes_received(compiled.as_text(), spread.shape.devices),
        "demanded": demand.bytes_moved,
        "remote": demand.held.remote,
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
        "kernels": compiled.as_text().count('custom_call_target="tpu_custom_call"'),
    }


if __name__ == "__main__":
    chips = topologies.get_topology_desc(platform="tpu", topology_name=sys.argv[1]).devices
    for strategy in sys.argv[2:] or STRATEGIES:
        sys.stdout.write(json.dumps(compile_step(strategy, chips)) + "\n")
        sys.stdout.flush()

"""What each process of a run holds: its own shards of the graph, and no more.

With several processes the first lays out the graph and writes it to the run's folder, shard by
shard; then it lets go of the graph, and every process maps the shards of its own devices from
there. A run that is continued on the same mesh finds them, and no process reads the graph at all.
All hosts have to see the run's folder, as they do for checkpoints.

`isolated` is the exception: drawing new parts takes the edges, so every process keeps the graph.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gtjax.distributed.team import Team
from gtjax.graph.checked_files import hash_of_json
from gtjax.partition import Partition
from gtjax.sharding.stored import open_store
from gtjax.training.batches import Batches, OneBatch, make_batches
from gtjax.training.config import TrainConfig, to_mapping
from gtjax.training.facts import GraphFacts
from gtjax.training.prepare import Progress, open_batch, prepare, store_batch, whole_layout
from gtjax.training.source import Source
from gtjax.training.step import Program
from pallas_kernels.segment_attention.api import backend_name


def batches_of(
    team: Team,
    source: Source,
    facts: GraphFacts,
    config: TrainConfig,
    program: Program,
    folder: Path,
    *,
    partition: Partition | None = None,
    progress: Progress | None = None,
) -> Batches:
    """The batches of a run, placed on the devices of all its processes."""
    if team.is_alone or not program.spread.strategy.exact:
        with team.mistakes_shared():
            spreads = (program.spread, program.exact)
            graph = source.graph
            return make_batches(graph, config, *spreads, progress=progress, partition=partition)
    path = folder / "parts" / _key(facts, config, program)

    def write() -> None:
        if not path.exists():  # which it does only once it is complete
            host = prepare(source.graph, config, progress)
            layout, made = whole_layout(host, config, program.exact, progress, partition)
            about = {"graph": facts.fingerprint, "partition": made.fingerprint}
            store_batch(path, host, layout, program.exact, about=about)

    team.from_first(write)
    source.let_go()
    with team.mistakes_shared():
        return OneBatch(open_batch(path, program.exact), open_store(path).about["partition"])


def _key(facts: GraphFacts, config: TrainConfig, program: Program) -> str:
    """Names all that the layout depends on."""
    parallel, model = config.parallel, config.model
    known: dict[str, Any] = {
        "graph": facts.fingerprint,
        "seed": config.seed,
        "prepare": to_mapping(config.prepare),
        "strategy": program.exact.strategy.name,
        "mesh": dataclasses.asdict(program.exact.shape),
        "partitioner": parallel.partitioner,
        "inner": parallel.inner,
        "exchange": parallel.exchange,
        "kernel": backend_name(config.kernel, program.exact.platform),
        "model": [model.architecture, model.hidden, model.positional, model.positional_size],
    }
    return hash_of_json(known)

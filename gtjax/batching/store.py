"""What each process of a run holds: its own shards of the graph, and no more.

With several processes the first lays out the graph and writes it to the run's folder, shard by
shard; then it lets go of the graph, and every process maps the shards of its own devices from
there. A run that is continued on the same mesh finds them, and no process reads the graph at all.
Where the graph is stored with the edges that the run wants, and a partition of it too, the first
process does not read it either: each writes the shards of its own parts (`own_parts`).
All hosts have to see the run's folder, or it is at an address, as for checkpoints.

Batchings that do not see all of the graph in every step are the exception: drawing new parts takes
the edges, so every process keeps the graph.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gtjax.batching.base import Batches, Whole
from gtjax.batching.chunked_graph import in_chunks
from gtjax.batching.chunks import Chunks
from gtjax.batching.config import BatchingSettings
from gtjax.batching.full import OneBatch
from gtjax.batching.own_parts import parts_of, why_not, write_own_parts
from gtjax.batching.prepare import (
    open_batch,
    prepare,
    store_batch,
    whole_layout,
)
from gtjax.batching.source import Source
from gtjax.batching.table import BATCHINGS
from gtjax.core.hashed_files import hash_of_json
from gtjax.core.progress import Progress
from gtjax.distributed.team import Team
from gtjax.graph import StoredGraph
from gtjax.partition import Partition, StoredPartition, is_stored_partition, open_partition
from gtjax.remote.address import address_of, inside
from gtjax.sharding.mesh import Spread
from gtjax.sharding.stored import is_stored, open_store


def make_batches(
    source: Source,
    settings: BatchingSettings,
    evaluation: Spread,
    progress: Progress | None = None,
    partition: Partition | None = None,
) -> Batches:
    """The batches of one process, of which the first are placed; see `batches_of`."""
    batching = BATCHINGS[settings.batches.batching]
    if isinstance(batching, Chunks):  # nothing is placed
        return batching.open(source.seen, settings, progress)
    graph = source.seen
    host = prepare(graph, settings, progress, source.known)
    # What is read piece by piece in training is in evaluation too.
    pieces = batching.reads_stored and settings.parallel.memory is not None
    whole = Whole(
        host,
        evaluation,
        lambda: whole_layout(host, settings, evaluation, progress, partition),
        in_chunks(host, settings) if pieces or isinstance(graph, StoredGraph) else None,
    )
    return batching.make(whole, settings, batching.training(evaluation), progress)


def batches_of(
    team: Team,
    source: Source,
    fingerprint: str,
    settings: BatchingSettings,
    evaluation: Spread,
    folder: str | Path,
    *,
    partition: Partition | None = None,
    progress: Progress | None = None,
) -> Batches:
    """The batches of a run, placed on the devices of all its processes.

    Args:
        team: The processes of the run.
        source: Of the graph, which the first process reads, and only if nothing is stored.
        fingerprint: Hash of the graph.
        settings: What the batches depend on.
        evaluation: How evaluation is spread over devices.
        folder: Of the run, or its address; from a store each process fetches its own shards.
        partition: What the partitioner makes of the graph, where that is known already.
        progress: Told how far preparing is.
    """
    if team.is_alone or not BATCHINGS[settings.batches.batching].sees_all:
        with team.mistakes_shared():
            return make_batches(source, settings, evaluation, progress, partition)
    path = inside(folder, "parts", _key(fingerprint, settings, evaluation))

    owned = _own_partition(source, settings)

    def parts_apart() -> bool:
        return (
            owned is not None
            and address_of(path) is None
            and owned.graph_fingerprint == fingerprint
            and not is_stored(path)
            and why_not(settings, evaluation, owned) is None
        )

    if team.from_first(parts_apart):
        assert owned is not None
        about = {"graph": fingerprint, "partition": owned.partition.fingerprint}
        own = parts_of(evaluation.mesh, team.index)
        write_own_parts(team, Path(path), owned, settings, evaluation, own, about=about)

    def write() -> None:
        if not is_stored(path):  # which it is only once it is complete
            source.in_place = False
            host = prepare(source.seen, settings, progress, source.known)
            layout, made = whole_layout(host, settings, evaluation, progress, partition)
            about = {"graph": fingerprint, "partition": made.fingerprint}
            store_batch(path, host, layout, evaluation, about=about)

    team.from_first(write)
    source.let_go()
    with team.mistakes_shared():
        return OneBatch(open_batch(path, evaluation), open_store(path).about["partition"])


def _own_partition(source: Source, settings: BatchingSettings) -> StoredPartition | None:
    """The stored partition of a graph that is read in place."""
    name = settings.parallel.partitioner
    return open_partition(name) if source.in_place and is_stored_partition(name) else None


def _key(fingerprint: str, settings: BatchingSettings, spread: Spread) -> str:
    """Names all that the layout depends on."""
    parallel = settings.parallel
    known: dict[str, Any] = {
        "graph": fingerprint,
        "seed": settings.seed,
        "prepare": dataclasses.asdict(settings.prepare),
        "strategy": spread.strategy.name,
        "mesh": dataclasses.asdict(spread.shape),
        "partitioner": parallel.partitioner,
        "inner": parallel.inner,
        "exchange": parallel.exchange,
        "forms": list(settings.forms),
        "sparse_forms": settings.sparse_forms,
        "hidden": settings.hidden,
        "task": settings.task,
        "positional": [settings.positional, settings.positional_size],
    }
    return hash_of_json(known)

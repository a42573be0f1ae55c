"""The partitioners by name, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import Graph, required_graph
from gtjax.partition.balance import METIS_NODE_SLACK
from gtjax.partition.contiguous import contiguous
from gtjax.partition.metis import is_installed, metis
from gtjax.partition.partition import Partition, check_num_parts
from gtjax.partition.random import random
from gtjax.partition.store import is_stored_partition, open_partition
from gtjax.partition.streaming import streaming
from gtjax.partition.whole_graphs import whole_graphs

PARTITIONERS: dict[str, Callable[..., Partition]] = {
    "metis": metis,
    "streaming": streaming,
    "contiguous": contiguous,
    "random": random,
    "graphs": whole_graphs,
}

MOST_METIS_EDGES = 100_000_000  # for "auto": METIS takes some 100 bytes an edge


def partition_graph(
    graph: Graph,
    num_parts: int,
    how: str = "auto",
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Partition:
    """Give every node an owner among `num_parts`, with few edges between parts and equal work.

    how:      a name of PARTITIONERS, or "auto": graphs where there are many, else metis if pymetis
              is installed, the graph has no more than MOST_METIS_EDGES edges and the parts come out
              with nodes balanced (on power-law graphs without communities they do not), else
              streaming. Or the folder of a stored partition into as many parts.
    seed:     the same seed gives the same partition.
    progress: called with the fraction done and a message while it computes.
    """
    graph = required_graph(graph, "partition_graph")
    check_num_parts(num_parts)
    check_partitioner(how)
    if num_parts == 1:
        return Partition(np.zeros(graph.num_nodes, np.int32), 1)
    if is_stored_partition(how):
        return _stored(how, num_parts, graph)
    options = {"seed": seed, "progress": progress}
    if how == "auto" and graph.graphs is not None:
        how = "graphs"
    if how != "auto":
        return PARTITIONERS[how](graph, num_parts, **options)
    if is_installed() and graph.num_edges <= MOST_METIS_EDGES:
        partition = PARTITIONERS["metis"](graph, num_parts, **options)
        if not _is_lopsided(partition):
            return partition
    return PARTITIONERS["streaming"](graph, num_parts, **options)


def _stored(folder: str, num_parts: int, graph: Graph) -> Partition:
    partition = open_partition(folder).partition
    if partition.num_parts != num_parts:
        raise UserError(
            f"{folder} holds {partition.num_parts} parts; {num_parts} are wanted, one for each "
            "device along the node axis. Partition the graph again, or use as many devices."
        )
    partition.check_fits(graph)
    return partition


def _is_lopsided(partition: Partition) -> bool:
    """Whether the largest part has so many nodes that all others would be mostly padding."""
    sizes_p = partition.sizes_p
    most = (1 + METIS_NODE_SLACK) * sizes_p.mean()
    return bool(sizes_p.max() > 1.1 * most + 1)


def check_partitioner(how: str) -> None:
    """Refuse a name that is no partitioner's."""
    if how != "auto" and how not in PARTITIONERS and not is_stored_partition(how):
        names = ", ".join(["auto", *PARTITIONERS])
        raise UserError(
            f"a partitioner is one of {names}, or the folder of a stored partition (with a slash "
            f"in its name); found {how!r}. Choose one."
        )

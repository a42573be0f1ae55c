"""Whole graphs to each part, where many stand side by side: no edge is cut.

Choose it for tasks of whole graphs; "auto" does. A graph's work is its
nodes and edges; the heaviest go first, each to the part that has the least so far, so parts differ
by less than one graph.
"""

from __future__ import annotations

import heapq

import numpy as np

from gtjax.core.errors import UserError
from gtjax.core.progress import Progress
from gtjax.graph import Graph
from gtjax.partition.partition import Partition, check_num_parts


def whole_graphs(
    graph: Graph, num_parts: int, *, seed: int = 0, progress: Progress | None = None
) -> Partition:
    """Deal out graphs by their work; the same for every seed."""
    check_num_parts(num_parts)
    if graph.graphs is None:
        raise UserError(
            f"the partitioner graphs deals out whole graphs of many; {graph.name} is one graph. "
            f"Choose another."
        )
    ids_n, count = graph.graphs.ids_n, graph.graphs.count
    work_g = np.bincount(ids_n, minlength=count)
    work_g += np.bincount(ids_n[graph.receivers_e], minlength=count)
    return Partition(dealt(work_g, num_parts)[ids_n], num_parts)


def dealt(work_g: np.ndarray, num_parts: int) -> np.ndarray:
    """The part of each item of some work."""
    part_g = np.empty(len(work_g), np.int32)
    loads = [(0, part) for part in range(num_parts)]
    for number in np.argsort(-work_g, kind="stable").tolist():
        load, part = heapq.heappop(loads)
        part_g[number] = part
        heapq.heappush(loads, (load + int(work_g[number]), part))
    return part_g

"""Nodes dealt out at random with balanced in-edges: the worst cut there is, for comparison.

About (k-1)/k of the edges are cut whatever the graph. It costs one count of degrees, and is what
`feature_all_to_all` can live with: it does not care which nodes are together.
"""

from __future__ import annotations

import numpy as np

from gtjax.core.progress import Progress
from gtjax.graph import Graph
from gtjax.partition.balance import split_evenly, work_n
from gtjax.partition.partition import Partition, check_num_parts


def random(
    graph: Graph, num_parts: int, *, seed: int = 0, progress: Progress | None = None
) -> Partition:
    """Shuffle the nodes and cut the sequence into parts with equally many in-edges."""
    check_num_parts(num_parts)
    degrees_n = np.bincount(graph.receivers_e, minlength=graph.num_nodes)
    order_n = np.random.default_rng(seed).permutation(graph.num_nodes)
    owner_n = np.empty(graph.num_nodes, np.int32)
    owner_n[order_n] = split_evenly(work_n(degrees_n)[order_n], num_parts)
    return Partition(owner_n, num_parts)

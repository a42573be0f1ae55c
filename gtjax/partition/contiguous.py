"""Ranges of node numbers with balanced in-edges: for graphs whose order already has locality.

Choose it where neighbours have near numbers (crawled web pages in order of their addresses, grids,
road maps), or after `gtjax.locality_order`. It costs one count of degrees, and cuts about as badly
as `random` where node numbers mean nothing.
"""

from __future__ import annotations

import numpy as np

from gtjax.core.progress import Progress
from gtjax.graph import Graph
from gtjax.partition.balance import split_evenly, work_n
from gtjax.partition.partition import Partition, check_num_parts


def contiguous(
    graph: Graph, num_parts: int, *, seed: int = 0, progress: Progress | None = None
) -> Partition:
    """Cut the nodes in their order; the same for every seed."""
    check_num_parts(num_parts)
    degrees_n = np.bincount(graph.receivers_e, minlength=graph.num_nodes)
    return Partition(split_evenly(work_n(degrees_n), num_parts), num_parts)

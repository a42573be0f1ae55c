"""A graph in memory as a stream for label propagation: its edges node by node, both directions."""

from __future__ import annotations

import numpy as np

from gtjax.graph import Graph
from gtjax.partition.choices import Chunk
from gtjax.partition.label_propagation import WeightedChunks
from gtjax.partition.multilevel import chunk_size


def graph_chunks(graph: Graph) -> tuple[WeightedChunks, np.ndarray]:
    """A graph's edges in both directions, without self-loops, grouped by node; and their counts."""
    sides = [graph.by_receiver] if graph.is_symmetric else [graph.by_receiver, graph.by_sender]
    loops_n = np.bincount(
        graph.receivers_e[graph.senders_e == graph.receivers_e], minlength=graph.num_nodes
    )
    rows_n = sum((rows.degrees_n - loops_n for rows in sides), np.zeros(graph.num_nodes, np.int64))
    ends_n = np.cumsum(rows_n)
    size = chunk_size(int(ends_n[-1]), graph.num_nodes)

    def chunks():
        first = 0
        while first < graph.num_nodes:
            before = ends_n[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends_n, before + size, side="right")))
            pieces = [_rows(rows.offsets, rows.neighbours_e, first, last) for rows in sides]
            nodes, others = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
            yield Chunk(nodes, others, np.ones(len(nodes), np.int64))
            first = last

    return chunks, rows_n


def _rows(
    offsets: np.ndarray, neighbours_e: np.ndarray, first: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    nodes_e = np.repeat(np.arange(first, last), np.diff(offsets[first : last + 1]))
    others_e = neighbours_e[offsets[first] : offsets[last]]
    apart_e = nodes_e != others_e
    return nodes_e[apart_e], others_e[apart_e]

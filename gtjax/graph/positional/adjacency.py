"""The matrix both encodings are made from: S = D^-1/2 A D^-1/2 of the undirected simple graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gtjax.graph.graph import Graph


def undirected_adjacency(graph: Graph) -> sp.csr_array:
    """A: 1 where an edge joins two nodes in either direction, however often; float32."""
    ends = (graph.senders_e, graph.receivers_e)
    ones = np.ones(graph.num_edges, np.float32)
    size = (graph.num_nodes, graph.num_nodes)
    one_way = sp.coo_array((ones, ends), shape=size).tocsr()
    both_ways = one_way + one_way.T.tocsr()
    both_ways.data[:] = 1
    return both_ways


def normalised(adjacency: sp.csr_array, dtype: type = np.float32) -> sp.csr_array:
    """S = D^-1/2 A D^-1/2; the row of a node without edges is zero."""
    degrees_n = np.asarray(adjacency.sum(axis=1, dtype=np.float64))
    scale_n = np.zeros_like(degrees_n)
    np.divide(1, np.sqrt(degrees_n), out=scale_n, where=degrees_n > 0)
    scale_n = scale_n.astype(dtype)
    data = adjacency.data * np.repeat(scale_n, np.diff(adjacency.indptr))
    data *= scale_n[adjacency.indices]
    pattern = (data.astype(dtype, copy=False), adjacency.indices, adjacency.indptr)
    return sp.csr_array(pattern, shape=adjacency.shape)

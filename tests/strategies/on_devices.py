"""Attention over a graph under a strategy, with tables in the order of the graph."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Partition
from gtjax.sharding.attention import Attention
from gtjax.sharding.mesh import Spread, make_mesh
from gtjax.sharding.place import place_parts, place_rows
from gtjax.strategies import STRATEGIES, MeshShape, Strategy


def graph_of(senders, receivers, nodes) -> Graph:
    """A graph with nothing but edges."""
    return Graph(senders, receivers, np.zeros((nodes, 0), np.float32), np.full(nodes, -1))


def on_one_device(graph: Graph):
    """Edge features in the order of the edges of `attend`, and `attend`."""
    spread = Spread(STRATEGIES["single"], MeshShape(), make_mesh(MeshShape()))
    whole = Partition(np.zeros(graph.num_nodes, np.int32), 1)
    layout = spread.strategy.layout(graph, whole, spread.shape, propagates=True)
    edge_x_ef = None if graph.edge_x_ef is None else jnp.asarray(graph.edge_x_ef[layout.edge_pe[0]])
    return edge_x_ef, Attention(spread, jax.tree.map(jnp.asarray, layout.arrays))


class OnDevices:
    """A graph laid out on a mesh, and attention over it."""

    def __init__(
        self, graph: Graph, strategy: Strategy, shape: MeshShape, partition: Partition, kernel
    ):
        self.spread = Spread(strategy, shape, make_mesh(shape))
        self.layout = strategy.layout(graph, partition, shape, kernel=kernel)
        arrays = place_parts(self.spread.mesh, self.layout.arrays)
        self.attention = Attention(self.spread, arrays, kernel)
        self.graph = graph

    def nodes(self, table: np.ndarray) -> jax.Array:
        """A table of nodes, on the devices."""
        return place_rows(self.spread.mesh, self.layout.numbering.node_pr, table)

    def edges(self, table: np.ndarray | None) -> jax.Array | None:
        """A table of edges, on the devices; padding is full of NaN, which must not matter."""
        if table is None:
            return None
        return place_rows(self.spread.mesh, self.layout.edge_pe, table, np.nan)

    def nodes_back(self, table: jax.Array) -> np.ndarray:
        """The rows of the nodes, in the order of the graph."""
        return np.asarray(table)[self.layout.numbering.position_n]

    def edges_back(self, table: jax.Array) -> np.ndarray:
        """The rows of the edges, in the order of the graph; those of padding have to be zero."""
        flat, rows = self.layout.edge_pe.reshape(-1), np.asarray(table)
        result = np.full((self.graph.num_edges, *rows.shape[1:]), np.nan, rows.dtype)
        result[flat[flat >= 0]] = rows[flat >= 0]
        assert not rows[flat < 0].any()
        return result

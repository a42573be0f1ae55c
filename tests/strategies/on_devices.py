"""Ops over a graph under a strategy, with tables in the order of the graph."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Partition
from gtjax.sharding.mesh import Spread, make_mesh
from gtjax.sharding.neighbours import BoundNeighbours
from gtjax.sharding.place import place_parts, place_rows
from gtjax.strategies import PLAIN, STRATEGIES, MeshShape, Strategy, Wire, number_nodes
from pallas_kernels.edges import EDGE_FORMS


def graph_of(senders, receivers, nodes) -> Graph:
    """A graph with nothing but edges."""
    return Graph(senders, receivers, np.zeros((nodes, 0), np.float32), np.full(nodes, -1))


def on_one_device(graph: Graph):
    """Edge features in the order of the edges, and the neighbours."""
    spread = Spread(STRATEGIES["single"], MeshShape(), make_mesh(MeshShape()))
    numbering = number_nodes(Partition(np.zeros(graph.num_nodes, np.int32), 1))
    layout = spread.strategy.layout(graph, numbering, numbering, spread.shape, forms=EDGE_FORMS)
    edge_x_ef = None if graph.edge_x_ef is None else jnp.asarray(graph.edge_x_ef[layout.edge_pe[0]])
    degree_n = jnp.asarray(graph.by_receiver.degrees_n, jnp.float32)
    return edge_x_ef, BoundNeighbours(spread, jax.tree.map(jnp.asarray, layout.arrays), degree_n)


class OnDevices:
    """A graph laid out on a mesh, and its neighbours."""

    def __init__(
        self,
        graph: Graph,
        strategy: Strategy,
        shape: MeshShape,
        partition: Partition,
        kernel: str = "auto",
        wire: Wire = PLAIN,
    ):
        self.spread = Spread(strategy, shape, make_mesh(shape))
        numbering = number_nodes(partition, multiple=shape.feature)
        self.layout = strategy.layout(graph, numbering, numbering, shape, forms=EDGE_FORMS)
        arrays = place_parts(self.spread.mesh, self.layout.arrays)
        degree_n = graph.by_receiver.degrees_n.astype(np.float32)
        self.neighbours = BoundNeighbours(self.spread, arrays, self.nodes(degree_n), kernel, wire)
        self.graph = graph

    def nodes(self, tables: Any) -> Any:
        """Tables of nodes, on the devices."""
        node_pr = self.layout.senders.node_pr
        return jax.tree.map(lambda x: place_rows(self.spread.mesh, node_pr, x), tables)

    def edges(self, tables: Any) -> Any:
        """Tables of edges, on the devices; padding is full of NaN, which must not matter."""
        edge_pe = self.layout.edge_pe
        return jax.tree.map(lambda x: place_rows(self.spread.mesh, edge_pe, x, np.nan), tables)

    def nodes_back(self, table: jax.Array) -> np.ndarray:
        """The rows of the nodes, in the order of the graph."""
        return np.asarray(table)[self.layout.senders.position_n]

    def edges_back(self, table: jax.Array) -> np.ndarray:
        """The rows of the edges, in the order of the graph; those of padding have to be zero."""
        flat, rows = self.layout.edge_pe.reshape(-1), np.asarray(table)
        result = np.full((self.graph.num_edges, *rows.shape[1:]), np.nan, rows.dtype)
        result[flat[flat >= 0]] = rows[flat >= 0]
        assert not rows[flat < 0].any()
        return result

"""Random graphs for property tests: multi-edges, self-loops and isolated nodes included."""

import numpy as np
from hypothesis import strategies as st

from gtjax.graph import Graph


def make_graph(senders, receivers, num_nodes: int, **fields) -> Graph:
    """A graph with one feature a node (its number) and no labels, unless given."""
    fields.setdefault("x_nf", np.arange(num_nodes, dtype=np.float32)[:, None])
    fields.setdefault("labels_n", np.full(num_nodes, -1))
    return Graph(np.asarray(senders, np.int32), np.asarray(receivers, np.int32), **fields)


def edge_pairs(graph: Graph) -> list[tuple[int, int]]:
    """The edges as a list of (sender, receiver)."""
    return list(zip(graph.senders_e.tolist(), graph.receivers_e.tolist(), strict=True))


@st.composite
def graphs(draw, max_nodes: int = 8, max_edges: int = 24) -> Graph:
    """Few nodes and many edges, so that every coincidence happens; edges carry their number."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    senders, receivers = np.asarray(pairs, np.int32).reshape(-1, 2).T
    edge_x = None
    if draw(st.booleans()):
        edge_x = 1 + np.arange(len(pairs), dtype=np.float32)[:, None]
    return make_graph(senders, receivers, num_nodes, edge_x_ef=edge_x)

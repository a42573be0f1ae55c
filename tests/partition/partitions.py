"""Random graphs with partitions of them, empty parts included."""

import numpy as np
from hypothesis import strategies as st

from gtjax.partition import Partition
from tests.graph.graphs import graphs


@st.composite
def partitioned_graphs(draw, max_parts: int = 5):
    """A small graph, and an owner for each of its nodes."""
    graph = draw(graphs())
    num_parts = draw(st.integers(1, max_parts))
    part = st.integers(0, num_parts - 1)
    owner = draw(st.lists(part, min_size=graph.num_nodes, max_size=graph.num_nodes))
    return graph, Partition(np.asarray(owner), num_parts)

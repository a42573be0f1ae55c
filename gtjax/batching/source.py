"""The graph of a run: read where it is needed, and let go of when it is on the devices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gtjax.batching.prepare import MessageEdges
from gtjax.graph import Graph, StoredGraph, required_graph


class Source:
    """A graph, or how to get it.

    One that is stored is read into memory when it is asked for, but where `in_place` says that it
    is to be read piece by piece.
    """

    def __init__(self, graph: Graph | StoredGraph | Callable[[], Graph | StoredGraph]):
        self._load = None if isinstance(graph, Graph | StoredGraph) else graph
        self._found = graph if isinstance(graph, Graph | StoredGraph) else None
        self._graph = graph if isinstance(graph, Graph) else None
        self.in_place = False
        self.known: MessageEdges | None = None  # what planning has prepared already
        self.change: Callable[[Graph], Graph] = lambda graph: graph

    @property
    def node_names(self) -> np.ndarray | None:
        """Names of the nodes, as far as the graph is here and has them."""
        return None if self._graph is None else self._graph.names.nodes

    @property
    def seen(self) -> Graph:
        """The graph as a model may see it: `change` says what the task takes away."""
        return self.change(self.graph)

    @property
    def stored(self) -> StoredGraph | None:
        """The graph as it is stored, if it is."""
        if self._found is None:
            assert self._load is not None
            self._found = self._load()
        return self._found if isinstance(self._found, StoredGraph) else None

    @property
    def graph(self) -> Graph:
        """The graph in memory, loaded when it is first asked for; or the stored one, in place."""
        if self.in_place and self.stored is not None:
            return self.stored  # pyright: ignore[reportReturnType] - it has the same surface
        if self._graph is None:
            self._graph = required_graph(
                self.stored or self._found, "a function that loads for fit"
            )
        return self._graph

    def let_go(self) -> None:
        """Forget the graph, if it can be had again."""
        if self._load is not None:
            self._graph = self._found = None
        elif self.stored is not None:
            self._graph = None
        self.known = None

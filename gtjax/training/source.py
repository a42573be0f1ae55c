"""The graph of a run: read where it is needed, and let go of when it is on the devices."""

from __future__ import annotations

from collections.abc import Callable

from gtjax.graph import Graph


class Source:
    """A graph, or how to get it."""

    def __init__(self, graph: Graph | Callable[[], Graph]):
        self._load = None if isinstance(graph, Graph) else graph
        self._graph = graph if isinstance(graph, Graph) else None

    @property
    def graph(self) -> Graph:
        """The graph, loaded when it is first asked for."""
        if self._graph is None:
            assert self._load is not None
            self._graph = self._load()
        return self._graph

    def let_go(self) -> None:
        """Forget the graph, if it can be had again."""
        if self._load is not None:
            self._graph = None

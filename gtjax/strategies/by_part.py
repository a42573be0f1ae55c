"""Layouts part by part: what one part needs of its own edges, and what all parts have to agree on.

A strategy that is `ByPart` says how the edges of one part come, stage after stage, once it is known
which rows arrive in which round. The rest is the same for all of them, and for two callers: one
process that lays out all parts (`lay_out`), and many of which each lays out its own
(`gtjax.batching.own_parts`), with the same arrays to the bit. What parts agree on is little: how
many rows each wants of each other, and the largest size of every array, which all are padded to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from gtjax.graph import Graph
from gtjax.strategies.base import Layout, MeshShape, Strategy
from gtjax.strategies.exchange import Exchange, Messages, Round, exchange_of, halos
from gtjax.strategies.numbering import Numbering
from gtjax.strategies.part_edges import PartEdges, edges_by_part, stacked
from pallas_kernels.edges import EdgeForm, EdgeList, Edges


class StageEdges(NamedTuple):
    """Edges of one part that are worked on at once, and the rows of the table that they read."""

    edges: EdgeList
    senders: int  # the same in every part


@runtime_checkable
class ByPart(Protocol):
    """A strategy whose parts can be laid out one by one."""

    @property
    def wants_rows(self) -> bool:
        """Whether rows travel in rounds, of an exchange that parts agree on."""
        ...

    @property
    def lays_out_parts(self) -> bool:
        """Whether it can, as it is set."""
        ...

    def stage_edges(
        self,
        edges: PartEdges,
        part: int,
        senders: Numbering,
        arrivals: Sequence[np.ndarray],
        messages: Sequence[Messages],
    ) -> list[StageEdges]:
        """The edges of a part, stage by stage; `arrivals` are the rows that come in each round."""
        ...

    def joined(self, edges: Sequence[Edges], rounds: Sequence[Round], senders: Numbering) -> Any:
        """The arrays of a layout, of the edges of every stage and the rounds between them."""
        ...


def part_strategy(strategy: Strategy) -> ByPart | None:
    """What lays out the parts of a strategy one by one, itself or what it wraps; None: nothing."""
    inner = getattr(strategy, "inner", strategy)
    return inner if isinstance(inner, ByPart) and inner.lays_out_parts else None


def lay_out(
    strategy: ByPart,
    graph: Graph,
    senders: Numbering,
    receivers: Numbering,
    mesh: MeshShape,
    forms: Collection[EdgeForm],
) -> Layout:
    """All parts at once."""
    parts = edges_by_part(graph, senders, receivers)
    exchange = Exchange((), [[] for _ in parts])
    if strategy.wants_rows:
        needed = halos(parts, senders)
        bounds = np.arange(senders.parts + 1) * senders.rows
        first_pq = np.array([np.searchsorted(positions, bounds) for positions in needed])

        def wanted(target: int, source: int) -> np.ndarray:
            return needed[target][first_pq[target, source] : first_pq[target, source + 1]]

        exchange = exchange_of(np.diff(first_pq, axis=1), wanted, senders.rows, range(len(parts)))
    messages = [each.messages for each in exchange.rounds]
    by_part = [
        strategy.stage_edges(edges, part, senders, exchange.arrivals[part], messages)
        for part, edges in enumerate(parts)
    ]
    built = [
        stacked(
            [each.edges for each in stage], stage[0].senders, receivers.rows, mesh.feature, forms
        )
        for stage in zip(*by_part, strict=True)
    ]
    arrays = strategy.joined([edges for edges, _ in built], exchange.rounds, senders)
    edge_pe = np.concatenate([numbers_pe for _, numbers_pe in built], axis=1)
    return Layout(senders, receivers, arrays, edge_pe)

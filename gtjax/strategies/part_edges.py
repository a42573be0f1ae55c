"""The edges of every part, sorted by receiver, with senders by their position in all parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gtjax.core.errors import UserError
from gtjax.graph import Graph
from gtjax.graph.csr import stable_pair_order
from gtjax.strategies.numbering import PADDING, Numbering, padded
from pallas_kernels.edges import EdgeForm, EdgeList, Edges, LimitError, build_stacked_edges


@dataclass(frozen=True)
class PartEdges:
    """In-edges of one part's nodes, in the order of their receivers."""

    senders_e: np.ndarray  # position of the sender in all parts
    receivers_e: np.ndarray  # row of the receiver within the part
    edge_ids_e: np.ndarray  # number of the edge in the graph

    def where(self, chosen_e: np.ndarray) -> PartEdges:
        """Some of the edges, in the same order."""
        return PartEdges(
            self.senders_e[chosen_e], self.receivers_e[chosen_e], self.edge_ids_e[chosen_e]
        )

    def within(self, part: int, rows: int) -> EdgeList:
        """The edges that start in the part itself, with senders by their row."""
        own_e = self.senders_e // rows == part
        own = self if own_e.all() else self.where(own_e)
        return own.from_senders(own.senders_e - part * rows if part else own.senders_e)

    def from_senders(self, senders_e: np.ndarray) -> EdgeList:
        """For a kernel, with senders numbered in the table that it will be given."""
        return EdgeList(senders_e, self.receivers_e, self.edge_ids_e)


def edges_by_part(graph: Graph, senders: Numbering, receivers: Numbering) -> list[PartEdges]:
    """Sort all edges by the position of their receiver, then sender, and cut them at the parts.

    By sender, so that a stretch of a long row reads senders that stand close together.
    """
    receivers_e = receivers.position_n[graph.receivers_e]
    senders_e = senders.position_n[graph.senders_e]
    most = max(receivers.parts * receivers.rows, senders.parts * senders.rows)
    order_e = stable_pair_order(receivers_e, senders_e, most)
    receivers_e = receivers_e[order_e]
    senders_e = senders_e[order_e]  # one after the other, so that what is past is let go
    first_p = np.searchsorted(receivers_e, np.arange(receivers.parts + 1) * receivers.rows)
    return [
        PartEdges(
            senders_e[start:end],
            receivers_e[start:end] - part * receivers.rows if part else receivers_e[start:end],
            order_e[start:end],
        )
        for part, (start, end) in enumerate(pairwise(first_p))
    ]


def edges_of_part(
    senders_e: np.ndarray,
    receivers_e: np.ndarray,
    edge_ids_e: np.ndarray,
    part: int,
    senders: Numbering,
    receivers: Numbering,
) -> PartEdges:
    """What `edges_by_part` gives for one part, of the edges into it alone, in ascending order."""
    at_e = receivers.position_n[receivers_e] - part * receivers.rows
    from_e = senders.position_n[senders_e]
    most = max(receivers.rows, senders.parts * senders.rows)
    order_e = stable_pair_order(at_e, from_e, most)
    return PartEdges(from_e[order_e], at_e[order_e], np.asarray(edge_ids_e)[order_e])


def stacked(
    lists: list[EdgeList],
    senders: int,
    receivers: int,
    multiple: int,
    forms: Collection[EdgeForm],
    *,
    at_least: int = 0,
    **fit: Any,
) -> tuple[Edges, np.ndarray]:
    """The edges of all parts in arrays of equal shapes, and their numbers, padded alike."""
    numbers_pe = edge_numbers(lists, multiple, at_least=at_least)
    with limits_told():
        edges = build_stacked_edges(
            lists,
            num_senders=senders,
            num_receivers=receivers,
            forms=forms,
            num_edges=numbers_pe.shape[1],
            **fit,
        )
    return edges, numbers_pe


@contextmanager
def limits_told() -> Iterator[None]:
    """More than one device can hold is a mistake of who asked for so few devices."""
    try:
        yield
    except LimitError as error:
        raise UserError(str(error)) from error


def edge_numbers(parts: list[EdgeList], multiple: int, *, at_least: int = 0) -> np.ndarray:
    """Numbers of the edges of every part, padded to the longest: [parts, edges]."""
    length = padded(max(at_least, *(len(part.edge_ids_e) for part in parts)), multiple)
    if len(parts) == 1 and len(parts[0].edge_ids_e) == length:
        return parts[0].edge_ids_e[None]
    dtype = np.result_type(*(part.edge_ids_e for part in parts))
    edge_pe = np.full((len(parts), length), PADDING, dtype)
    for row_e, part in zip(edge_pe, parts, strict=True):
        row_e[: len(part.edge_ids_e)] = part.edge_ids_e
    return edge_pe

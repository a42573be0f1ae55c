"""What a strategy is: transport. How the rows that an op needs reach the device that needs them.

A strategy is a frozen dataclass in a file of its own and a line in `STRATEGIES`. On the host it
lays out the edges (`layout`); within `jax.shard_map`, on a device, it says in which stages they
come and how rows of other devices get here and their gradients back (`stages`); and it says by
arithmetic what that costs (`demand`). It names no op, no parameter and no model: any op runs under
any of them by the one driver (`run.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut
from gtjax.strategies.numbering import Numbering, rows_of_parts
from gtjax.strategies.op_work import OpWork
from pallas_kernels.driver import Stage
from pallas_kernels.edges import EdgeForm

NODE, FEATURE = "node", "feature"


@dataclass(frozen=True)
class MeshShape:
    """Devices along each axis of the mesh."""

    node: int = 1
    feature: int = 1

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.node * self.feature

    def __str__(self) -> str:
        return f"node={self.node},feature={self.feature}"


@dataclass(frozen=True)
class Refusal:
    """Why something cannot run, and what to do instead."""

    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.advice}."


@dataclass(frozen=True)
class Layout:
    """The edges of a graph as a strategy lays them out, on the host."""

    senders: Numbering
    receivers: Numbering
    arrays: Any  # a tree of arrays with a leading axis of parts, for the devices
    edge_pe: np.ndarray  # number of the edge at each position of a part, or PADDING

    @property
    def edges_p(self) -> np.ndarray:
        """Edges that each part works on, padding left out."""
        return (self.edge_pe >= 0).sum(axis=1)


@dataclass(frozen=True)
class Transfer:
    """One collective, `count` times: bytes that the busiest device receives each time."""

    collective: str  # as in HLO: all-gather, reduce-scatter, all-to-all, collective-permute
    axis: str
    bytes: float
    count: int = 1
    hideable: bool = False  # some of the op does not wait for it
    forward: float = 0.5  # share of the `count` that the forward pass takes


@dataclass(frozen=True)
class Pass:
    """A call of an op's kernel, once forward and once backward."""

    work: OpWork  # as the device sees it: of its share of the heads or channels
    edges: float  # of the device that has most
    mean_edges: float  # of all devices
    rows: int
    senders: int  # rows of the table that is gathered from
    hides: bool = False  # runs while transfers are on the way


@dataclass(frozen=True)
class Held:
    """Bytes that one call of an op holds on the busiest device, beyond what it is given."""

    remote: float = 0.0  # rows of other devices that are there at once
    kept: float = 0.0  # of those, and partial results, what is kept for the backward pass
    backward: float = 0.0  # that the backward pass holds at once
    traded: float = 0.0  # copies of rows that are traded for heads or channels


@dataclass(frozen=True)
class Demand:
    """What one call of an op costs, forward and backward, on the busiest device."""

    transfers: tuple[Transfer, ...]
    passes: tuple[Pass, ...]
    held: Held = Held()

    @property
    def bytes_moved(self) -> dict[str, float]:
        """Bytes received, by collective."""
        total: dict[str, float] = {}
        for each in self.transfers:
            total[each.collective] = total.get(each.collective, 0.0) + each.bytes * each.count
        return total


class Strategy(Protocol):
    """One way of transport over a mesh."""

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        """The axes it spreads over; the others have one device."""
        ...

    @property
    def refetches(self) -> bool:
        """Whether the backward pass fetches rows again instead of keeping them."""
        ...

    def refusal(self, works: Sequence[OpWork], mesh: MeshShape) -> Refusal | None:
        """Why ops such as these cannot run on this mesh, if they cannot."""
        ...

    def layout(
        self,
        graph: Graph,
        senders: Numbering,
        receivers: Numbering,
        mesh: MeshShape,
        *,
        forms: Collection[EdgeForm] = (),
    ) -> Layout:
        """Lay the edges out, in the forms that kernels need.

        Edges of a part are padded to a multiple of the feature axis, so that what belongs to edges
        can be spread over it.
        """
        ...

    def stages(self, arrays: Any) -> tuple[Stage, ...]:
        """What happens on a device, one stage after the other, inside `shard_map`."""
        ...

    def demand(self, cut: Cut, work: OpWork, mesh: MeshShape) -> Demand:
        """What one call of the op costs, by arithmetic."""
        ...

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Edges of every part as the layout pads them."""
        ...


def op_pass(
    work: OpWork, edges_p: np.ndarray, rows: int, senders: int, *, hides: bool = False
) -> Pass:
    """The op over so many edges of every part."""
    return Pass(work, float(edges_p.max()), float(edges_p.mean()), rows, senders, hides)


def part_rows(cut: Cut, mesh: MeshShape) -> int:
    """Rows of every part: those of the largest, padded as `number_nodes` does."""
    return rows_of_parts(int(cut.nodes_p.max()), cut.num_parts, mesh.feature)

"""What a strategy is: a layout on the host, attention within a device, and what both cost.

A strategy is a frozen dataclass in a file of its own and a line in `STRATEGIES`. The model calls
attention on arrays whose rows are nodes, spread over all devices of the mesh; `attend` runs inside
`jax.shard_map`, sees the rows of one device, and exchanges what it needs by the names of the mesh
axes. It names no parameter and no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from gtjax.graph import Graph
from gtjax.partition import Cut, Partition
from gtjax.strategies.numbering import Numbering, rows_of_parts
from pallas_kernels.segment_attention import Backend, Dropout

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
class ModelShape:
    """What a strategy has to know of a model to say what it costs."""

    layers: int
    hidden: int
    heads: int
    edge_bias: bool = False
    bytes_per_value: int = 4  # of queries, keys and values
    propagates: bool = False  # the decoupled model: coefficients once, then rounds
    couples_nodes: str | None = None  # a setting by which nodes depend on all others, edges or not


@dataclass(frozen=True)
class Layout:
    """The graph as a strategy lays it out, on the host."""

    numbering: Numbering
    arrays: Any  # a tree of arrays with a leading axis of parts, for the devices
    edge_pe: np.ndarray  # int64: number of the edge at each position of a part, or PADDING

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
    hideable: bool = False  # some attention does not wait for it
    forward: float = 0.5  # share of the `count` that the forward pass takes


@dataclass(frozen=True)
class Pass:
    """A call of the attention kernel, once forward and once backward in every layer."""

    edges: float  # of the device that has most
    mean_edges: float  # of all devices
    rows: int
    senders: int  # rows of the tables of keys and values
    heads: int
    width: int  # of a row, over all these heads
    hides: bool = False  # runs while transfers are on the way


@dataclass(frozen=True)
class Demand:
    """What attention costs in one training step, forward and backward, on the busiest device."""

    transfers: tuple[Transfer, ...]
    passes: tuple[Pass, ...]  # of one layer
    flops: float
    remote_bytes: float  # keys and values of other devices that are held at once, in one layer
    kept_bytes: float = 0.0  # of those, what each layer keeps for its backward pass
    backward_bytes: float = 0.0  # that the backward pass of one layer holds at once
    traded_bytes: float = 0.0  # copies of rows that are traded for heads, in one layer

    @property
    def bytes_moved(self) -> dict[str, float]:
        """Bytes received, by collective."""
        total: dict[str, float] = {}
        for each in self.transfers:
            total[each.collective] = total.get(each.collective, 0.0) + each.bytes * each.count
        return total


class Strategy(Protocol):
    """One way of spreading attention over a mesh."""

    @property
    def name(self) -> str:
        """As users write it."""
        ...

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        """The axes it spreads over; the others have one device."""
        ...

    @property
    def exact(self) -> bool:
        """Whether losses and gradients equal those of one device."""
        ...

    def check(self, model: ModelShape, mesh: MeshShape) -> None:
        """Raise a `UserError` where the model does not fit the mesh."""
        ...

    def layout(
        self,
        graph: Graph,
        partition: Partition,
        mesh: MeshShape,
        *,
        kernel: str | Backend = "auto",
        order_n: np.ndarray | None = None,
        propagates: bool = False,
    ) -> Layout:
        """Lay the graph out, with nodes in `order_n` within their parts.

        Rows and edges of a part are padded to multiples of the feature axis, so that the model's
        dense layers can be spread over it. `propagates` says that `propagate` will be called too.
        """
        ...

    def attend(
        self,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """Attention of this device's nodes, inside `shard_map`."""
        ...

    def propagate(
        self,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        rounds: int,
        restart: float,
        dropout: Dropout | None = None,
        kernel: str | Backend = "auto",
    ) -> jax.Array:
        """Rounds of attention with the same weights, inside `shard_map`."""
        ...

    def demand(self, cut: Cut, model: ModelShape, mesh: MeshShape) -> Demand:
        """What it costs, by arithmetic."""
        ...

    def padded_edges(self, cut: Cut, mesh: MeshShape) -> int:
        """Edges of every part as the layout pads them."""
        ...


class RoundByRound:
    """Propagation for strategies that keep nothing of what they fetch from round to round."""

    def propagate(
        self: Any,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        rounds: int,
        restart: float,
        **options: Any,
    ) -> jax.Array:
        """Attend `rounds` times, each time with a share of the start mixed back in."""
        start_nhd = v_nhd
        for _ in range(rounds):
            near = v_nhd.astype(k_nhd.dtype)
            mixed_nhd = self.attend(arrays, q_nhd, k_nhd, near, bias_eh, **options)
            v_nhd = ((1 - restart) * mixed_nhd + restart * start_nhd).astype(start_nhd.dtype)
        return v_nhd


class FetchThenAttend:
    """For strategies that first fetch rows of other parts, and then attend to those and their own.

    They define `fetch(arrays, *tables)`, and `attend_fetched` with keys and values as pairs of the
    part's own and what was fetched.
    """

    def attend(
        self: Any,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        **options: Any,
    ) -> jax.Array:
        """Fetch keys and values together, and attend."""
        k_far, v_far = self.fetch(arrays, k_nhd, v_nhd)
        keys, values = (k_nhd, k_far), (v_nhd, v_far)
        return self.attend_fetched(arrays, q_nhd, keys, values, bias_eh, **options)

    def propagate(
        self: Any,
        arrays: Any,
        q_nhd: jax.Array,
        k_nhd: jax.Array,
        v_nhd: jax.Array,
        bias_eh: jax.Array | None,
        *,
        rounds: int,
        restart: float,
        **options: Any,
    ) -> jax.Array:
        """Fetch keys once and values in every round, each with a share of the start mixed in."""
        start_nhd = v_nhd
        (k_far,) = self.fetch(arrays, k_nhd)
        for _ in range(rounds):
            near = v_nhd.astype(k_nhd.dtype)
            keys, values = (k_nhd, k_far), (near, *self.fetch(arrays, near))
            mixed_nhd = self.attend_fetched(arrays, q_nhd, keys, values, bias_eh, **options)
            v_nhd = ((1 - restart) * mixed_nhd + restart * start_nhd).astype(start_nhd.dtype)
        return v_nhd


def tables_fetched(model: ModelShape) -> int:
    """How many tables of keys or values are fetched in a forward pass, keys once if they can be."""
    return model.layers + 1 if model.propagates else 2 * model.layers


def attention_flops(edges: float, hidden: int) -> float:
    """Multiplications and additions of attention over so many edges, forward and backward.

    A product with the keys and one with the values forward; backward both again, and one product
    for each of the four gradients along an edge.
    """
    return 2.0 * hidden * edges * (2 + 5)


def attention_pass(
    edges_p: np.ndarray, rows: int, senders: int, model: ModelShape, *, hides: bool = False
) -> Pass:
    """Attention of every part over so many edges."""
    most, mean = float(edges_p.max()), float(edges_p.mean())
    return Pass(most, mean, rows, senders, model.heads, model.hidden, hides)


def part_rows(cut: Cut, mesh: MeshShape) -> int:
    """Rows of every part: those of the largest, padded as `Strategy.layout` does."""
    return rows_of_parts(int(cut.nodes_p.max()), cut.num_parts, mesh.feature)
